"""The optional extensions, the codec's and the broker's; everything else stands in pyproject.toml.

STOMPCODEC_BUILD_EXTENSION  no: pure Python. any: the same, for the wheel of platforms that have none of their own; it
                            warns when it is imported. yes: a failed build is an error. Unset: built where possible.
SOURCE_DATE_EPOCH           seconds since 1970: the time of all files in the archives, so that two builds are equal.
STOMPCODEC_CFLAGS_EXTRA     more flags for compiler and linker (sanitizers, say); they come last, so they win. Use a
                            folder of its own for such a build: what is up to date is not built again.
"""

import gzip
import os
import runpy
import shlex
import sys
import sysconfig
import tarfile
import time
from glob import glob
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.command.sdist import sdist

WANTED = os.environ.get("STOMPCODEC_BUILD_EXTENSION", "")
EXTRA = shlex.split(os.environ.get("STOMPCODEC_CFLAGS_EXTRA", ""))
CFLAGS = ["/O2"] if os.name == "nt" else ["-O3", "-g0", "-fvisibility=hidden"]
WARNING = """WARNING: stompcodec is built WITHOUT its C extensions: it works, but slower.
Reason: {}: {}
STOMPCODEC_BUILD_EXTENSION=yes makes this an error."""


class BuildExt(build_ext):
    """Cython and the compiler run here; what they cannot build is left out, unless it was asked for."""

    def initialize_options(self):
        super().initialize_options()
        self.cython_c_in_temp = True  # generated C never lies in src/

    def run(self):
        # pip shows nothing of a build that succeeds: stompcodec/codec.py warns of the reason at the first import.
        told = Path(self.get_ext_fullpath("stompcodec._codec_c")).with_name("_fallback.py")
        told.unlink(missing_ok=True)
        try:
            import Cython.Compiler.Main  # noqa: F401  named here so that a missing Cython is the reason given

            super().run()
        except Exception as error:
            if WANTED == "yes":
                raise
            print("*" * 78, WARNING.format(type(error).__name__, error), "*" * 78, sep="\n", file=sys.stderr)
            for extension in self.extensions:  # left over from an earlier build
                Path(self.get_ext_fullpath(extension.name)).unlink(missing_ok=True)
            self.extensions = self.distribution.ext_modules = []
            told.parent.mkdir(parents=True, exist_ok=True)
            told.write_text(f"REASON = {f'{type(error).__name__}: {error}'!a}\n", encoding="utf-8")

    def build_extension(self, ext):
        if isinstance(ext, Modules):
            ext.translate(Path(self.build_temp) / "hot", self.force)
        super().build_extension(ext)

    def build_extensions(self):
        # Some builds of Python add an rpath to their own folder: of no use elsewhere, and it names this machine.
        if hasattr(self.compiler, "linker_so"):
            linker = self.compiler.linker_so
            self.compiler.linker_so = [word for word in linker if not word.startswith("-Wl,-rpath,")]
        super().build_extensions()


class Wheel(bdist_wheel):
    """The tag is chosen after the build: a wheel without the extension is for every platform."""

    def run(self):
        self.run_command("build")
        if WANTED == "any":
            Path(self.get_finalized_command("build").build_lib, "stompcodec", "_fallback.py").write_text(
                'REASON = ""\n'
            )
        self.skip_build = True
        self.root_is_pure = not self.distribution.has_ext_modules()
        super().run()


class Sdist(sdist):
    """The same bytes for the same files, whoever builds it: sorted, without owners, umask and the time of the build."""

    def make_archive(self, base_name, format, root_dir=None, base_dir=None, owner=None, group=None):
        if format != "gztar":
            return super().make_archive(base_name, format, root_dir, base_dir, owner, group)
        epoch = int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))

        def plain(member):
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            member.mtime = epoch if "SOURCE_DATE_EPOCH" in os.environ else int(member.mtime)
            return member

        Path(base_name).parent.mkdir(parents=True, exist_ok=True)
        path = f"{base_name}.tar.gz"
        with (
            open(path, "wb") as file,
            gzip.GzipFile("", "wb", fileobj=file, mtime=epoch) as packed,
            tarfile.open(fileobj=packed, mode="w") as archive,
        ):
            archive.add(base_dir, filter=plain)  # in the order of names
        return path


#: The modules of the broker that are written for its extension alone, and the places that they have there.
PLACES = {
    "src/hot/heads.pyx": "stompcodec/broker/queues/heads.py",
    "src/hot/places.pyx": "stompcodec/broker/storage/places.py",
    "src/hot/road.pyx": "stompcodec/broker/sessions/road.py",
}
#: Types come from the .pxd files alone. Pickling by Cython would lose the fields of Python subclasses.
DIRECTIVES = {
    "language_level": 3,
    "annotation_typing": False,
    "auto_pickle": False,
    "nonecheck": True,
    "overflowcheck": True,
}


class Modules(Extension):
    """Modules with a .pxd file beside them, in one extension: `stompcodec/broker/hot.py` loads them from it."""

    def translate(self, folder, force):
        """Have Cython make C of the modules, where something has changed."""
        from Cython.Compiler.Main import CompilationOptions, compile_single, default_options

        latest, sources = max(Path(file).stat().st_mtime for file in self.depends), []
        for source in self.sources:
            name = PLACES.get(source, source).removesuffix(".py").replace("/", ".")
            made = folder / f"{name}.c"
            if source.endswith(".c"):
                made = source
            elif force or not made.exists() or made.stat().st_mtime < max(latest, Path(source).stat().st_mtime):
                folder.mkdir(parents=True, exist_ok=True)
                options = CompilationOptions(
                    default_options, output_file=str(made), include_path=["src", "."], compiler_directives=DIRECTIVES
                )
                if compile_single(source, options, full_module_name=name).num_errors:
                    raise RuntimeError(f"Cython cannot compile {source}")
            sources.append(str(made))
        self.sources = sources
        self.export_symbols = [
            f"PyInit_{Path(source).stem.rpartition('.')[2]}" for source in sources if "stompcodec." in source
        ]


def extension(name, sources, kind=Extension, **more):
    return kind(
        name,
        sources,
        include_dirs=["src"],
        depends=[
            *glob("src/*.h"),
            *glob("src/*/*.h"),
            *glob("src/*.px*"),
            *glob("stompcodec/broker/**/*.pxd", recursive=True),
        ],
        extra_compile_args=CFLAGS + EXTRA,
        extra_link_args=EXTRA,
        **more,
    )


def extensions():
    codec = ["src/codec.pyx", *sorted(set(glob("src/*.c")) - {"src/codec.c"})]
    found = [extension("stompcodec._codec_c", codec, define_macros=[("STOMP_PYTHON", "1")])]
    if not sysconfig.get_config_var("Py_GIL_DISABLED"):  # typed fields that hold objects need the GIL
        typed = [file.replace(".pxd", ".py") for file in sorted(glob("stompcodec/broker/**/*.pxd", recursive=True))]
        typed = [file for file in typed if file not in PLACES.values()]
        sources = [
            *typed,
            *PLACES,
            *sorted(glob("src/hot/*.c")),
            "src/text.c",
        ]  # the last is the writer of header lines
        found.append(extension("stompcodec.broker._hot", sources, Modules))
    return found


if WANTED not in ("", "no", "any", "yes"):
    sys.exit(f"STOMPCODEC_BUILD_EXTENSION is {WANTED!r}: use 'no', 'any' or 'yes', or leave it unset")
setup(
    ext_modules=[] if WANTED in ("no", "any") else extensions(),
    # README.md with absolute links: a package index shows it away from the tree.
    long_description=runpy.run_path("scripts/release.py")["long_description"](),
    long_description_content_type="text/markdown",
    cmdclass={"build_ext": BuildExt, "bdist_wheel": Wheel, "sdist": Sdist},
)
