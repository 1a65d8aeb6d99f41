// Python in a worker: Pyodide, the pure wheel of stompcodec, and playground.py. Nothing is loaded from another host.
import { loadPyodide } from "./pyodide/pyodide.mjs";

const here = new URL("./", import.meta.url).href;
/** Where Python finds what: archives on its path, and the module. */
const FILES = { "stompcodec.whl": "/lib/stompcodec.whl", "packages.zip": "/lib/packages.zip", "playground.py": "/lib/playground.py" };
const START = `
import sys
sys.path[:0] = ["/lib/stompcodec.whl", "/lib/packages.zip", "/lib"]
import playground
playground.Playground()
`;

async function fetched(name) {
  const answer = await fetch(here + name);
  if (!answer.ok) throw new Error(`${name}: ${answer.status}`);
  return new Uint8Array(await answer.arrayBuffer());
}

async function start() {
  const said = (line) => postMessage({ said: line });
  const files = Object.keys(FILES).map(fetched);
  const python = await loadPyodide({
    indexURL: `${here}pyodide/`,
    packageBaseUrl: `${here}pyodide/`,
    // The page has chosen pure Python: a warning that there is no C backend would tell its reader nothing.
    env: { HOME: "/home/pyodide", STOMPCODEC_PURE: "1" },
    stdout: said,
    stderr: said,
  });
  for (const [index, path] of Object.values(FILES).entries()) python.FS.writeFile(path, await files[index]);
  return [python, python.runPython(START)];
}

const started = start();
started.then(
  () => postMessage({ ready: true }),
  (error) => postMessage({ failed: String(error.message ?? error) }),
);

onmessage = async ({ data: { id, request, bytes } }) => {
  const [python, playground] = await started;
  let answer;
  try {
    const data = bytes === undefined ? undefined : python.toPy(bytes);
    answer = JSON.parse(playground.answer(JSON.stringify(request), data));
    data?.destroy();
  } catch (error) {
    const last = String(error.message ?? error).trim().split("\n").pop();
    answer = { line: `This page failed: ${last}` };
  }
  postMessage({ id, answer });
};
