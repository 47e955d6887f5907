# Linux on 64-bit ARM, by Debian's cross compiler; qemu-user runs what it builds.
#   apt install gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static
#   cmake -S . -B build/aarch64-linux --toolchain tools/toolchains/aarch64-linux.cmake
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
find_program(EDGESERVE_ARM_GCC NAMES aarch64-linux-gnu-gcc REQUIRED)
set(CMAKE_C_COMPILER ${EDGESERVE_ARM_GCC})
# Static, so that qemu needs no foreign libraries.
set(CMAKE_EXE_LINKER_FLAGS_INIT -static)
