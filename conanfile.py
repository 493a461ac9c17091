import os
import re

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.files import copy, load
from conan.tools.layout import basic_layout
from conan.tools.scm import Version

required_conan_version = ">=2.0"


class TuttiConan(ConanFile):
    name = "tutti"
    description = "Collective communication for trainers, in C++20 coroutines"
    license = "MIT"
    topics = ("collectives", "all-reduce", "distributed", "machine-learning", "coroutines", "header-only")
    package_type = "header-library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"with_openssl": [True, False]}
    default_options = {"with_openssl": False}
    exports_sources = "include/*", "LICENSE"
    no_copy_source = True
    test_package_folder = "tests/package/conan"

    def set_version(self):
        text = load(self, os.path.join(self.recipe_folder, "include", "tutti", "version.hpp"))
        self.version = ".".join(
            re.search(rf"#define TUTTI_VERSION_{part} (\d+)", text)[1] for part in ("MAJOR", "MINOR", "PATCH")
        )

    def layout(self):
        basic_layout(self)

    def requirements(self):
        if self.options.with_openssl:
            self.requires("openssl/[>=3.0 <4]", transitive_headers=True)

    def package_id(self):
        self.info.clear()

    def validate(self):
        # Not check_min_cppstd: a project may ask for C++20 itself, and the headers refuse less with a clear message.
        if self.settings.os != "Linux":
            raise ConanInvalidConfiguration(f"{self.ref} needs Linux")
        floor = {"gcc": "12", "clang": "16"}.get(str(self.settings.compiler))
        if floor and Version(self.settings.compiler.version) < floor:
            raise ConanInvalidConfiguration(
                f"{self.ref} needs {self.settings.compiler} {floor} or newer, for its coroutines"
            )

    def package(self):
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))
        copy(self, "*.hpp", os.path.join(self.source_folder, "include"), os.path.join(self.package_folder, "include"))
        copy(self, "*.cuh", os.path.join(self.source_folder, "include"), os.path.join(self.package_folder, "include"))
        copy(self, "*.inl", os.path.join(self.source_folder, "include"), os.path.join(self.package_folder, "include"))

    def package_info(self):
        self.cpp_info.bindirs = []
        self.cpp_info.libdirs = []
        self.cpp_info.set_property("cmake_file_name", "tutti")

        core = self.cpp_info.components["core"]
        core.set_property("cmake_target_name", "tutti::tutti")
        core.set_property("pkg_config_name", "tutti")
        core.bindirs, core.libdirs = [], []
        core.system_libs = ["pthread"]

        if self.options.with_openssl:
            component = self.cpp_info.components["openssl"]
            component.set_property("cmake_target_name", "tutti::openssl")
            component.set_property("pkg_config_name", "tutti-openssl")
            component.bindirs, component.libdirs = [], []
            component.defines = ["TUTTI_WITH_OPENSSL=1"]
            component.requires = ["core", "openssl::crypto"]
