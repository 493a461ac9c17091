import os
import re

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load
from conan.tools.scm import Version

required_conan_version = ">=2.0"


class TuttiConan(ConanFile):
    name = "tutti"
    description = "Collective communication for trainers, in C++20 coroutines"
    license = "MIT"
    topics = ("collectives", "all-reduce", "distributed", "machine-learning", "coroutines", "header-only")
    package_type = "library"  # header_only decides
    settings = "os", "arch", "compiler", "build_type"
    # header_only=False builds tutti::compiled, a static library, beside the headers.
    options = {"header_only": [True, False], "shared": [False], "with_openssl": [True, False]}
    default_options = {"header_only": True, "shared": False, "with_openssl": False}
    exports_sources = "CMakeLists.txt", "cmake/*", "include/*", "src/*", "LICENSE"
    no_copy_source = True
    test_package_folder = "tests/package/conan"

    def set_version(self):
        text = load(self, os.path.join(self.recipe_folder, "include", "tutti", "version.hpp"))
        self.version = ".".join(
            re.search(rf"#define TUTTI_VERSION_{part} (\d+)", text)[1] for part in ("MAJOR", "MINOR", "PATCH")
        )

    def layout(self):
        cmake_layout(self)

    def requirements(self):
        if self.options.with_openssl:
            self.requires("openssl/[>=3.0 <4]", transitive_headers=True)

    def package_id(self):
        if self.info.options.header_only:
            self.info.clear()

    def validate(self):
        if self.settings.os != "Linux":
            raise ConanInvalidConfiguration(f"{self.ref} needs Linux")
        standard = str(self.settings.get_safe("compiler.cppstd", "20"))  # without one the project says it
        if standard.removeprefix("gnu") in ("98", "11", "14", "17"):
            raise ConanInvalidConfiguration(
                f"{self.ref} needs C++20, and compiler.cppstd is {standard}: choose -s compiler.cppstd=20 or newer"
            )
        floor = {"gcc": "12", "clang": "16"}.get(str(self.settings.compiler))
        if floor and Version(self.settings.compiler.version) < floor:
            raise ConanInvalidConfiguration(
                f"{self.ref} needs {self.settings.compiler} {floor} or newer, for its coroutines"
            )

    def generate(self):
        if self.options.header_only:
            return
        toolchain = CMakeToolchain(self)
        for part in ("TESTS", "BENCH", "EXAMPLES", "TOOLS", "KERNELS"):
            toolchain.cache_variables[f"TUTTI_BUILD_{part}"] = False
        toolchain.generate()

    def build(self):
        if self.options.header_only:
            return
        cmake = CMake(self)
        cmake.configure()
        cmake.build(target="tutti_compiled")

    def package(self):
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))
        for kind in ("*.hpp", "*.cuh", "*.inl"):
            copy(self, kind, os.path.join(self.source_folder, "include"), os.path.join(self.package_folder, "include"))
        if not self.options.header_only:
            copy(self, "*.a", self.build_folder, os.path.join(self.package_folder, "lib"), keep_path=False)

    def package_info(self):
        self.cpp_info.bindirs, self.cpp_info.libdirs = [], []
        self.cpp_info.set_property("cmake_file_name", "tutti")
        self.cpp_info.set_property("cmake_config_version_compat", "SameMinorVersion")

        core = self.cpp_info.components["core"]
        core.set_property("cmake_target_name", "tutti::tutti")
        core.set_property("pkg_config_name", "tutti")
        core.bindirs, core.libdirs = [], []
        core.system_libs = ["pthread"]

        if not self.options.header_only:
            compiled = self.cpp_info.components["compiled"]
            compiled.set_property("cmake_target_name", "tutti::compiled")
            compiled.set_property("pkg_config_name", "tutti-compiled")
            compiled.bindirs, compiled.libdirs = [], ["lib"]
            compiled.libs = ["tutti"]
            compiled.defines = ["TUTTI_SEPARATE_COMPILATION"]
            compiled.requires = ["core"]

        if self.options.with_openssl:
            component = self.cpp_info.components["openssl"]
            component.set_property("cmake_target_name", "tutti::openssl")
            component.set_property("pkg_config_name", "tutti-openssl")
            component.bindirs, component.libdirs = [], []
            component.defines = ["TUTTI_WITH_OPENSSL=1"]
            component.requires = ["core", "openssl::ssl", "openssl::crypto"]
