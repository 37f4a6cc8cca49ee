# A recipe for Spack: put it into packages/shapeshifter/ of a repository of your own (spack repo create), then
#   spack install shapeshifter ^openmpi
from spack.package import *


class Shapeshifter(CMakePackage):
    """Trains a network of any architecture inside any parameter budget."""

    maintainers = []
    license("MIT")

    # The sources are a checkout: spack dev-build shapeshifter@main, in its folder.
    version("main")

    variant("cuda", default=False, description="Build the CUDA kernels")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.22:", type="build")
    depends_on("ninja", type="build")
    depends_on("mpi")
    depends_on("fmt")
    depends_on("cli11")
    depends_on("nlohmann-json")
    depends_on("tomlplusplus+shared")
    depends_on("onednn cpu_runtime=omp")
    depends_on("hdf5+hl~mpi")
    depends_on("zlib-api")
    depends_on("libdeflate")
    depends_on("libzip")
    depends_on("icu4c")
    depends_on("libjpeg-turbo")
    depends_on("libpng")
    depends_on("cuda@12:", when="+cuda")

    generator("ninja")

    def cmake_args(self):
        return [
            self.define("SSN_CUDA", "on" if self.spec.satisfies("+cuda") else "off"),
            self.define("SSN_BUILD_TESTS", False),
            self.define("SSN_BUILD_PERF", False),
        ]
