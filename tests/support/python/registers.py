"""Compiles kernels and looks in their code for functions that return with the upper halves of vector registers in use.

    registers.py FOLDER SOURCE -- COMPILER OPTION...
    registers.py --self-test

Until these halves are cleared (vzeroupper), each switch between the caller's SSE code and AVX code of a library takes
some 70 cycles. Each level of optimisation is a compilation of its own, since compilers clear them at some levels only.
Exits with 77, which ctest takes for skipped, where objdump or the compiler is missing, or the processor
is no x86-64.
"""

import pathlib
import platform
import re
import shutil
import subprocess
import sys

LEVELS = ["-O0", "-O1", "-O2", "-O3", "-Os", "-O2 -march=x86-64-v3", "-O2 -march=x86-64-v4"]
WIDE = re.compile(r"%[yz]mm(?:[0-9]|1[0-5])\b")
FUNCTION = re.compile(r"^[0-9a-f]+ <(.*)>:$")
INSTRUCTION = re.compile(r"^ *([0-9a-f]+):\t(?:(?:bnd|notrack|data16|cs|rep|repz) )*(\S+) *(.*)$")


def functions(disassembly):
    """Yields the name of each function and its instructions: address, mnemonic, operands."""
    name, body = None, []
    for line in disassembly.splitlines():
        if head := FUNCTION.match(line):
            if name:
                yield name, body
            name, body = head[1], []
        elif found := INSTRUCTION.match(line):
            body.append((int(found[1], 16), found[2], found[3]))
    if name:
        yield name, body


def returns_dirty(name, body):
    """Whether a path through the function ends after a wide register was used and not cleared."""
    at = {address: i for i, (address, _, _) in enumerate(body)}
    pending, seen = [(0, False)], set()
    while pending:
        i, dirty = pending.pop()
        while i < len(body) and (i, dirty) not in seen:
            seen.add((i, dirty))
            _, mnemonic, operands = body[i]
            if mnemonic in ("vzeroupper", "vzeroall"):
                dirty = False
            elif WIDE.search(operands):
                dirty = True
            if mnemonic.startswith("ret"):
                if dirty:
                    return True
                break
            if mnemonic.startswith("j"):
                target = re.match(r"([0-9a-f]+) <(.*?)(\+0x[0-9a-f]+)?>", operands)
                inside = target and target[2] == name and int(target[1], 16) in at
                if inside:
                    pending.append((at[int(target[1], 16)], dirty))
                elif dirty and "*" not in operands:
                    return True  # a call in place of the return
                if mnemonic.startswith("jmp"):
                    break
            i += 1
    return False


def findings(disassembly):
    """The functions that return dirty, and how many of all use wide registers."""
    dirty, wide = [], 0
    for name, body in functions(disassembly):
        if any(WIDE.search(operands) for _, _, operands in body):
            wide += 1
            if returns_dirty(name, body):
                dirty.append(name)
    return dirty, wide


def self_test():
    head = "0000000000000000 <f>:\n"
    load, clear, back = "   0:\tvmovups (%rdi),%ymm1\n", "   4:\tvzeroupper\n", "   7:\tret\n"
    assert findings(head + load + clear + back) == ([], 1)
    assert findings(head + load + back) == (["f"], 1)
    assert findings(head + "   0:\tvmovups (%rdi),%zmm17\n" + back) == ([], 0)
    branch = "   4:\tje     7 <f+0x7>\n   5:\tvzeroupper\n"
    assert findings(head + load + branch + back) == (["f"], 1)
    assert findings(head + load + "   4:\tjmp    0 <memmove>\n") == (["f"], 1)
    assert findings(head + "   0:\tvmovups %xmm1,(%rdi)\n" + back) == ([], 0)


def main():
    if sys.argv[1] == "--self-test":
        return self_test()
    folder, source, command = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[4:]
    if platform.machine() != "x86_64" or not shutil.which("objdump"):
        print("skipped: needs an x86-64 processor and objdump (Debian's binutils)")
        return 77
    if not shutil.which(command[0]):
        print(f"skipped: {command[0]} is not here")
        return 77
    folder.mkdir(parents=True, exist_ok=True)
    failed = 0
    for level in LEVELS:
        out = folder / "registers.o"
        subprocess.run([*command, *level.split(), "-c", source, "-o", out], check=True)
        text = subprocess.run(["objdump", "-d", "--no-show-raw-insn", out], check=True, capture_output=True, text=True)
        dirty, wide = findings(text.stdout)
        print(f"{level}: {wide} functions use wide registers, {len(dirty)} of them return with upper halves in use")
        for name in dirty:
            print(f"  {name}")
        if dirty or not wide:
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
