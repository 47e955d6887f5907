// macOS: wait-on-address by ulock, performance cores by sysctl.
#include <sys/sysctl.h>

#include "runtime/os_posix.h"

// The wait-on-address calls under libc++'s std::atomic::wait; stable, though in no header.
extern int __ulock_wait(uint32_t operation, void *address, uint64_t value, uint32_t microseconds);
extern int __ulock_wake(uint32_t operation, void *address, uint64_t value);

enum { UL_COMPARE_AND_WAIT = 1, ULF_WAKE_ALL = 0x100 };

void *es_os_pages(size_t n_bytes, int huge) {
    (void)huge; // macOS on Apple Silicon has 16 KiB pages and decides for itself
    void *pages = mmap(NULL, n_bytes == 0 ? 1 : n_bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANON, -1, 0);
    return pages == MAP_FAILED ? NULL : pages;
}

void es_os_pages_free(void *pages, size_t n_bytes) {
    if (pages != NULL) {
        munmap(pages, n_bytes == 0 ? 1 : n_bytes);
    }
}

void es_os_wait(atomic_uint *word, uint32_t expected) {
    __ulock_wait(UL_COMPARE_AND_WAIT, word, expected, 0);
}

void es_os_wake_all(atomic_uint *word) {
    __ulock_wake(UL_COMPARE_AND_WAIT | ULF_WAKE_ALL, word, 0);
}

static int32_t system_number(const char *name) {
    int32_t value = 0;
    size_t size = sizeof value;
    return sysctlbyname(name, &value, &size, NULL, 0) == 0 ? value : 0;
}

int32_t es_os_n_cores(void) {
    const int32_t fast = system_number("hw.perflevel0.physicalcpu");
    const int32_t all = system_number("hw.physicalcpu");
    return fast > 0 ? fast : all > 0 ? all : 1;
}
