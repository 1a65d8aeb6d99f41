"""Build the fuzz targets, each a file `fuzz_*` that opens with its invariant, and run each for a while: `make fuzz`.

Usage:
    run.py [--seconds N] [--jobs N] [TARGET ...]                   all targets by default
    run.py --runs 10000000 --seconds 7200 differential             until one of both is reached
    run.py --reproduce FILE TARGET                                 one input again

What they run on is built in fuzz/work: atheris, and the package with its extensions under sanitizers. Without Linux,
gcc or atheris it ends with a line that says so. A finding makes the exit status 1, and its input is in
fuzz/work/findings; it becomes a vector in tests/vectors in the commit that fixes it.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from case import dictionary, seeds, selector_seeds

FUZZ = Path(__file__).resolve().parent
WORK = FUZZ / "work"
TARGETS = ("differential", "connection", "websocket", "broker", "selector")
SLOWEST = 30  # seconds for one input
#: How the reason of a finding begins in what a target says.
REASON = re.compile(r"^.*(Uncaught Python|Traceback|ERROR: (Address|Leak)Sanitizer|runtime error:|does not hold)", re.M)
#: The extensions are linked without the runtime of a sanitizer, for one is preloaded; gcc_coverage.c uses the trace.
SANITIZE = (
    "-O1 -g -DNDEBUG -nodefaultlibs -lgcc -fsanitize=address,undefined -fno-sanitize-recover=all"
    " -fno-omit-frame-pointer -fno-wrapv -fsanitize-coverage=trace-pc"
)
#: Python leaks by design, and a small quarantine and short stacks make it three times as fast.
ASAN_OPTIONS = (
    "detect_leaks=0:verify_asan_link_order=0:allocator_may_return_null=1:quarantine_size_mb=16:malloc_context_size=4"
)


def build() -> dict[str, str]:
    """Build everything, and return the environment of the targets."""
    if sys.platform != "linux" or not shutil.which("gcc"):
        sys.exit("the fuzz targets need Linux and gcc, for the C backend and its sanitizers")
    packages, site = WORK / f"packages-{sys.implementation.cache_tag}", WORK / "site"
    WORK.mkdir(exist_ok=True)
    if not (packages / "atheris").is_dir():
        pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "install", "--only-binary=:all:")
        if subprocess.run([*pip, "--target", packages, "atheris"], capture_output=True).returncode:
            shutil.rmtree(packages, ignore_errors=True)
            sys.exit("no atheris for this Python and machine: see https://pypi.org/project/atheris")
    coverage = WORK / "gcc_coverage.so"
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", FUZZ / "gcc_coverage.c", "-o", coverage], check=True)
    shutil.rmtree(site, ignore_errors=True)
    flags = {"STOMPCODEC_BUILD_EXTENSION": "yes", "STOMPCODEC_CFLAGS_EXTRA": SANITIZE}
    setup = [sys.executable, "setup.py", "--quiet", "build", "--build-base", WORK / "build", "--build-lib", site]
    done = subprocess.run(setup, cwd=FUZZ.parent, env={**os.environ, **flags}, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"the package does not build:\n{done.stdout}{done.stderr}")
    # libstdc++ comes first too, or a C++ exception (pyarrow's) finds the sanitizer without its hook.
    libstdc = subprocess.run(["gcc", "-print-file-name=libstdc++.so"], capture_output=True, text=True).stdout.strip()
    return {
        **os.environ,
        "PYTHONPATH": f"{site}{os.pathsep}{packages}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONMALLOC": "malloc",
        "LD_PRELOAD": f"{coverage} {packages / 'asan_with_fuzzer.so'} {libstdc}",
        "ASAN_OPTIONS": ASAN_OPTIONS,
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }


def command_of(target: str, options: argparse.Namespace) -> list[str]:
    findings, corpus = WORK / "findings", WORK / "corpus" / target
    corpus.mkdir(parents=True, exist_ok=True)
    folders = [str(corpus), str(WORK / "seeds" / ("selector" if target == "selector" else "wire"))]
    flags = [f"-max_total_time={options.seconds}", f"-dict={WORK / 'words'}", f"-seed={options.seed}"]
    flags += [f"-artifact_prefix={findings}/{target}-", f"-runs={options.runs}", "-max_len=1024", "-rss_limit_mb=4096"]
    flags += [f"-timeout={SLOWEST}", f"-report_slow_units={SLOWEST}"]  # less may be the load of the machine
    return [sys.executable, str(FUZZ / f"fuzz_{target}.py"), *flags, *folders]


def run(environment: dict[str, str], target: str, options: argparse.Namespace) -> tuple[int, list[str]]:
    """Run a target to its end, and return how many inputs it had, and its findings."""
    log, findings = WORK / "logs" / f"{target}.log", WORK / "findings"
    log.parent.mkdir(exist_ok=True)
    before, start = set(findings.iterdir()), time.perf_counter()
    with log.open("w") as out:
        command = command_of(target, options)
        status = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, env=environment, cwd=WORK).returncode
    seconds, text = time.perf_counter() - start, log.read_text("utf-8", "replace")
    found = [path.name for path in sorted(set(findings.iterdir()) - before) if path.name.startswith((target, "crash"))]
    if status and not found:
        found = [f"exit status {status}"]
    counts = re.findall(r"^#(\d+)\s|^Done (\d+) runs", text, re.MULTILINE)
    inputs = max((int("".join(count)) for count in counts), default=0)
    covered = ["-", *re.findall(r"\bcov: (\d+)", text)][-1]
    print(f"{target:14}{inputs:12,}{inputs / seconds:10,.0f}{covered:>10}   {len(found)} findings", flush=True)
    if found:
        first = REASON.search(text)
        shown = text[first.start() :][:3000] if first else text[-3000:]
        print(f"--- {target}: {', '.join(found)}; from {log}:", shown, "---", sep="\n", flush=True)
    return inputs, [f"{target}: {name}" for name in found]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--runs", type=int, default=10**12, help="inputs for each target, if that is reached first")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="targets at a time")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**9, help="of the random numbers")
    parser.add_argument("--reproduce", type=Path, metavar="FILE", help="run this input on one target")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)}; default: all")
    options = parser.parse_args()
    if not set(options.targets) <= set(TARGETS):
        parser.error(f"the targets are {', '.join(TARGETS)}")
    built = build()
    if options.reproduce:  # with all that it says shown
        command = [sys.executable, str(FUZZ / f"fuzz_{options.targets[0]}.py"), str(options.reproduce.resolve())]
        return subprocess.run(command, env=built).returncode
    (WORK / "findings").mkdir(exist_ok=True)
    (WORK / "words").write_text(dictionary())
    for name, inputs in {"wire": seeds(), "selector": selector_seeds()}.items():
        (WORK / "seeds" / name).mkdir(parents=True, exist_ok=True)
        for data in inputs:
            (WORK / "seeds" / name / hashlib.sha256(data).hexdigest()).write_bytes(data)
    print(f"seed of the random numbers: {options.seed}")
    print(f"{'target':14}{'executions':>12}{'per second':>10}{'coverage':>10}", flush=True)
    with ThreadPoolExecutor(options.jobs) as pool:
        done = list(pool.map(lambda target: run(built, target, options), options.targets or TARGETS))
    findings = [name for _, found in done for name in found]
    total = sum(inputs for inputs, _ in done)
    print(*findings, f"{len(done)} targets, {total:,} executions, {len(findings)} findings", sep="\n")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
