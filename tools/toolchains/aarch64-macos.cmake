# macOS on Apple's own processors:
#   cmake -S . -B build/aarch64-macos --toolchain tools/toolchains/aarch64-macos.cmake
set(CMAKE_SYSTEM_NAME Darwin)
set(CMAKE_SYSTEM_PROCESSOR arm64)
set(zig_target aarch64-macos)
include(${CMAKE_CURRENT_LIST_DIR}/zig.cmake)
# CMake asks for a bundle, which zig does not link; Python loads a dynamic library as well.
set(CMAKE_MODULE_LINKER_FLAGS_INIT -dynamiclib)
