#!/usr/bin/env python3
"""Uses tutti as another project would, one way per call.

  run.py plain|add_subdirectory|find_package|compiled|pkg_config|vcpkg|conan [--build DIR] [--cxx COMPILER]

Exit status 77 means skipped, with the reason printed: only conan does that, when no package index can be reached.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SKIPPED = 77


class Failure(Exception):
    pass


def run(*command, env=None, expect=0, cwd=None):
    """Runs a command and returns what it printed. expect: its exit status, or None when it must fail."""
    command = [str(c) for c in command]
    print("+", " ".join(command), flush=True)
    done = subprocess.run(
        command,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=dict(os.environ, **(env or {})),
        cwd=cwd,
    )
    right = done.returncode != 0 if expect is None else done.returncode == expect
    if not right:
        raise Failure(f"exit status {done.returncode} of {' '.join(command)}\n{done.stdout}")
    return done.stdout


def version():
    text = (ROOT / "include/tutti/version.hpp").read_text()
    return ".".join(re.search(rf"#define TUTTI_VERSION_{part} (\d+)", text)[1] for part in ("MAJOR", "MINOR", "PATCH"))


def expect_output(program, *words):
    out = run(program)
    print(out, end="")
    for word in (f"tutti {version()}", *words):
        if word not in out:
            raise Failure(f"{program} must print '{word}', but printed: {out}")


def fresh(folder):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def headers(base):
    return {p.relative_to(base).as_posix() for p in base.rglob("*") if p.suffix in (".hpp", ".inl", ".cuh")}


def check_prefix(prefix, build):
    """Every header is there, and nothing remembers where it was built."""
    missing = headers(ROOT / "include") - headers(prefix / "include")
    if missing:
        raise Failure(f"not installed: {sorted(missing)}")
    for path in prefix.rglob("*"):
        if path.is_file() and any(str(place).encode() in path.read_bytes() for place in (ROOT, build)):
            raise Failure(f"{path} holds a path of this machine")


def install(args, work, *options):
    """Installs the library, then moves the tree, so that only relative paths survive."""
    run(
        "cmake",
        "-S",
        ROOT,
        "-B",
        work / "tutti",
        "-G",
        "Ninja",
        f"-DCMAKE_CXX_COMPILER={args.cxx}",
        f"-DCMAKE_INSTALL_PREFIX={work / 'stage'}",
        *(f"-DTUTTI_BUILD_{part}=OFF" for part in ("TESTS", "BENCH", "EXAMPLES", "TOOLS")),
        *options,
    )
    run("cmake", "--build", work / "tutti")
    run("cmake", "--install", work / "tutti")
    (work / "stage").rename(work / "prefix")
    check_prefix(work / "prefix", work)
    return work / "prefix"


def consume(args, work, *options, expect=0):
    return run(
        "cmake",
        "-S",
        HERE / "cmake",
        "-B",
        work,
        "-G",
        "Ninja",
        f"-DCMAKE_CXX_COMPILER={args.cxx}",
        *options,
        expect=expect,
    )


def build_and_run(work):
    run("cmake", "--build", work)
    expect_output(work / "consumer")
    expect_output(work / "consumer_openssl", "openssl")


def consume_compiled(args, work, prefix):
    wanted = ("-DTUTTI_WANTED_COMPONENTS=compiled", "-DCMAKE_BUILD_TYPE=Debug")
    consume(args, work, f"-DCMAKE_PREFIX_PATH={prefix}", *wanted)
    run("cmake", "--build", work, "--target", "consumer_compiled")
    expect_output(work / "consumer_compiled", "compiled")


def compiled(args, work):
    """The library tutti::compiled, installed, by CMake and by pkg-config; and files of both kinds in one program."""
    prefix = install(args, work, "-DTUTTI_COMPILED=ON", "-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_CXX_FLAGS_DEBUG=-O0")
    consume_compiled(args, work / "consumer", prefix)

    env = {"PKG_CONFIG_PATH": str(next(prefix.glob("lib*/**/pkgconfig")))}
    flags = run("pkg-config", "--cflags", "--libs", "tutti-compiled", env=env).split()
    run(args.cxx, "-std=c++20", HERE / "main.cpp", *flags, "-o", work / "by_pkg_config")
    expect_output(work / "by_pkg_config", "compiled")

    (work / "other.cpp").write_text("#include <tutti/config.hpp>\n")
    mixed = ["-I", ROOT / "include", "-c", work / "other.cpp", "-o", work / "other.o"]
    run(args.cxx, "-std=c++20", *mixed)
    for how in ([], ["-Wl,--gc-sections"]):
        program = ["-o", work / "mixed", *how]
        out = run(args.cxx, "-std=c++20", HERE / "main.cpp", work / "other.o", *flags, *program, expect=None)
        if "separately_compiled" not in out:
            raise Failure(f"a linker must refuse files with and without TUTTI_SEPARATE_COMPILATION in words: {out}")


def plain(args, work):
    warned = ["-Wall", "-Wextra", "-Werror"]  # as users do, to whom these are no headers of the system
    main = [HERE / "main.cpp", "-o", work / "consumer"]
    run(args.cxx, "-std=c++20", *warned, "-I", ROOT / "include", "-pthread", *main)
    expect_output(work / "consumer")


def add_subdirectory(args, work):
    consume(args, work, f"-DTUTTI_SOURCE_DIR={ROOT}")
    on = re.findall(r"^(TUTTI_\w+):BOOL=ON$", (work / "CMakeCache.txt").read_text(), re.MULTILINE)
    if on:
        raise Failure(f"on by default in a user's project: {on}")
    build_and_run(work)

    consume(args, work / "alone", f"-DTUTTI_SOURCE_DIR={ROOT}", "-DTUTTI_WANTED_COMPONENTS=")
    cache = (work / "alone/CMakeCache.txt").read_text()
    unasked = re.findall(r"^(?:\w*(?:SSL|CUDA|NCCL|PKG_CONFIG|pkgcfg)|CMAKE_INSTALL_\w+DIR)\w*", cache, re.MULTILINE)
    if unasked:
        raise Failure(f"looked for in a user's project that asked for no component: {unasked}")
    for component, options, message in (
        ("bogus", (), "tutti has no component 'bogus'"),
        ("openssl", ("-DCMAKE_DISABLE_FIND_PACKAGE_OpenSSL=ON",), "'openssl' needs OpenSSL::"),
    ):
        wanted = (f"-DTUTTI_SOURCE_DIR={ROOT}", f"-DTUTTI_WANTED_COMPONENTS={component}", *options)
        out = consume(args, fresh(work / "refused"), *wanted, expect=None)
        if message not in " ".join(out.split()):
            raise Failure(f"the component {component} must be refused with '{message}', but got\n{out}")


def find_package(args, work):
    prefix = f"-DCMAKE_PREFIX_PATH={install(args, work)}"
    consume(args, work / "consumer", prefix, f"-DTUTTI_WANTED_VERSION={version()}")
    build_and_run(work / "consumer")

    major, minor, _ = version().split(".")
    for options, message in (
        (["-DTUTTI_WANTED_COMPONENTS=bogus"], "has no component 'bogus'"),
        (["-DCMAKE_DISABLE_FIND_PACKAGE_OpenSSL=ON"], "'openssl' needs OpenSSL::"),
        (["-DTUTTI_WANTED_COMPONENTS=nccl", "-DCMAKE_DISABLE_FIND_PACKAGE_NCCL=ON"], "'nccl' needs NCCL::nccl"),
        (
            ["-DTUTTI_WANTED_COMPONENTS=kernels", "-DCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON"],
            "'kernels' needs CUDA::cudart",
        ),
        (["-DTUTTI_WANTED_COMPONENTS=compiled"], "installed without its component 'compiled'"),
        ([f"-DTUTTI_WANTED_VERSION={major}.{int(minor) + 1}"], "compatible with requested version"),
    ):
        out = consume(args, fresh(work / "refused"), prefix, *options, expect=None)
        if message not in " ".join(out.split()):
            raise Failure(f"{options} must be refused with '{message}', but got\n{out}")


def pkg_config(args, work):
    env = {"PKG_CONFIG_PATH": str(install(args, work) / "share/pkgconfig")}
    for name, words in (("tutti", ()), ("tutti-openssl", ("openssl",))):
        flags = run("pkg-config", "--cflags", "--libs", name, env=env).split()
        if run("pkg-config", "--modversion", name, env=env).strip() != version():
            raise Failure(f"{name}.pc has another version than version.hpp")
        run(args.cxx, "-std=c++20", HERE / "main.cpp", *flags, "-o", work / f"consumer-{name}")
        expect_output(work / f"consumer-{name}", *words)


def run_port(args, checkout, work, features, expect=0):
    return run(
        "cmake",
        f"-DPORT_DIR={checkout / 'packaging/vcpkg/ports/tutti'}",
        f"-DWORK_DIR={work}",
        f"-DFEATURES={features}",
        "-P",
        HERE / "vcpkg/run_port.cmake",
        env={"CXX": args.cxx},
        expect=expect,
    )


def vcpkg(args, work):
    port = ROOT / "packaging/vcpkg/ports/tutti"
    for manifest in (ROOT / "vcpkg.json", port / "vcpkg.json"):
        found = json.loads(manifest.read_text())
        if found["version-semver"] != version():
            raise Failure(f"{manifest} says {found['version-semver']}, version.hpp says {version()}")
    portfile = (port / "portfile.cmake").read_text()
    for feature in re.findall(r"^    (\w+) TUTTI_", portfile, re.MULTILINE):
        if feature not in json.loads((port / "vcpkg.json").read_text())["features"]:
            raise Failure(f"portfile.cmake knows a feature '{feature}' that vcpkg.json lacks")

    checkout = work / "checkout"
    for part in ("include", "src", "cmake", "tools", "packaging"):
        shutil.copytree(ROOT / part, checkout / part, ignore=shutil.ignore_patterns("sources.sha256"))
    for part in ("CMakeLists.txt", "LICENSE"):
        shutil.copy(ROOT / part, checkout / part)
    stamp = checkout / "packaging/vcpkg/ports/tutti/stamp.cmake"
    stamps = set()
    for change in ("", "// changed\n"):
        with (checkout / "include/tutti/version.hpp").open("a") as file:
            file.write(change)
        out = run_port(args, checkout, work, "core", expect=None)
        if f"cmake -P {stamp}" not in out:
            raise Failure(f"sources without a stamp, or with that of others, must be refused in words, but got\n{out}")
        run("cmake", "-P", stamp)
        stamps.add((stamp.parent / "sources.sha256").read_text())
    if len(stamps) != 2:
        raise Failure("other sources must make another stamp, or vcpkg does not build them")

    for features in ("core;openssl;tools", "core;compiled", "core"):
        run_port(args, checkout, work, features)
        for tool in ("tutti-run", "tutti-doctor", "tutti-flight"):
            if (work / "packages/tools/tutti" / tool).exists() != ("tools" in features):
                raise Failure(f"the features {features} must decide whether {tool} is installed")
        check_prefix(work / "packages", work)
        if "compiled" in features:
            consume_compiled(args, work / "compiled", work / "packages")
    consume(args, work / "consumer", f"-DCMAKE_PREFIX_PATH={work / 'packages'}", f"-DTUTTI_WANTED_VERSION={version()}")
    build_and_run(work / "consumer")


def conan(args, work):
    venv = args.build / "conan-venv"
    tool = venv / "bin/conan"
    if not tool.exists():
        run(sys.executable, "-m", "venv", "--clear", venv)
        try:
            run(
                venv / "bin/pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
                "conan>=2,<3",
                env={"PIP_RETRIES": "1"},
            )
        except Failure as failure:
            print(f"skipped: pip cannot install conan here.\n{failure}")
            return SKIPPED
    env = {"CONAN_HOME": str(work / "home"), "CXX": args.cxx}
    run(tool, "profile", "detect", env=env)
    cxx20 = ("-s", "compiler.cppstd=20")
    for options, words in (
        (cxx20, ()),
        ((*cxx20, "-o", "&:header_only=False", "-s", "build_type=Debug"), ("compiled",)),
    ):
        out = run(tool, "create", ".", *options, env=env, cwd=ROOT)
        print(out)
        if f"\n{' '.join(('tutti', version(), *words))} world 1" not in out:
            raise Failure(f"conan create {' '.join(options)} did not run the consumer with what it asks for")

    # The default of many compilers; what was made for C++20 is in the cache by now, and must not be handed out for it.
    wanted = ("--requires", f"tutti/{version()}", "--generator", "CMakeDeps", "--no-remote", "--output-folder")
    for options in ((), ("-o", "tutti/*:header_only=False", "-s", "build_type=Debug")):
        out = run(tool, "install", *wanted, work / "old", "-s", "compiler.cppstd=gnu17", *options, env=env, expect=None)
        if "needs C++20, and compiler.cppstd is gnu17" not in out:
            raise Failure(f"a profile of C++17 must be refused in a sentence, but got\n{out}")

    major, minor, _ = version().split(".")
    if int(minor):
        run(tool, "install", *wanted, work / "deps", *cxx20, env=env)
        options = (f"-DTUTTI_WANTED_VERSION={major}.{int(minor) - 1}", "-DTUTTI_WANTED_COMPONENTS=")
        out = consume(args, work / "refused", f"-DCMAKE_PREFIX_PATH={work / 'deps'}", *options, expect=None)
        if "compatible with requested version" not in " ".join(out.split()):
            raise Failure(f"conan must refuse another minor version as the installed package does, but got\n{out}")
    return 0


WAYS = {f.__name__: f for f in (plain, add_subdirectory, find_package, compiled, pkg_config, vcpkg, conan)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("way", choices=WAYS)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/package")
    parser.add_argument("--cxx", default="g++")
    args = parser.parse_args()
    args.build = args.build.resolve()
    try:
        return WAYS[args.way](args, fresh(args.build / args.way)) or 0
    except Failure as failure:
        print(f"package test '{args.way}' failed: {failure}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
