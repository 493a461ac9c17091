import os

from conan import ConanFile
from conan.tools.build import can_run
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout


class TuttiTestConan(ConanFile):
    settings = "os", "arch", "compiler", "build_type"
    generators = "CMakeDeps", "VirtualRunEnv"

    def requirements(self):
        self.requires(self.tested_reference_str)

    def layout(self):
        # Outside this folder, so that the checkout stays clean.
        cmake_layout(self, build_folder=os.path.join("..", "..", "..", "build", "conan"))

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.user_presets_path = False
        options = self.dependencies["tutti"].options
        toolchain.cache_variables["TUTTI_OPENSSL"] = bool(options.with_openssl)
        toolchain.cache_variables["TUTTI_COMPILED"] = not options.header_only
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def test(self):
        if can_run(self):
            self.run(os.path.join(self.cpp.build.bindir, "consumer"), env="conanrun")
