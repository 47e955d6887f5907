// Linux: futexes, huge pages, and how many cores a process may really use.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>

#include "runtime/os_posix.h"

enum { HUGE_PAGE = 2 << 20 };

#if defined(EDGESERVE_HEAP_PAGES)

void *es_os_pages(size_t n_bytes, int huge) {
    void *pages = NULL;
    (void)huge;
    if (posix_memalign(&pages, 64, n_bytes) != 0) {
        return NULL;
    }
    return memset(pages, 0, n_bytes);
}

void es_os_pages_free(void *pages, size_t n_bytes) {
    (void)n_bytes;
    free(pages);
}

#else

void *es_os_pages(size_t n_bytes, int huge) {
    if (n_bytes == 0) {
        n_bytes = 1;
    }
    void *pages = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED) {
        return NULL;
    }
    if (huge) {
        // The kernel aligns large anonymous maps itself where it can; advice is all it needs.
        madvise(pages, n_bytes, MADV_HUGEPAGE);
    }
    return pages;
}

void es_os_pages_free(void *pages, size_t n_bytes) {
    if (pages != NULL) {
        munmap(pages, n_bytes == 0 ? 1 : n_bytes);
    }
}

#endif

void es_os_wait(atomic_uint *word, uint32_t expected) {
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, NULL, NULL, 0);
}

void es_os_wake_all(atomic_uint *word) {
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

// The first number of a file such as /sys/.../thread_siblings_list ("0,4" or "0-1"); -1 if none.
static long first_number(const char *path) {
    FILE *file = fopen(path, "r");
    long number = -1;
    if (file != NULL) {
        if (fscanf(file, "%ld", &number) != 1) {
            number = -1;
        }
        fclose(file);
    }
    return number;
}

// Hybrid processors list their efficiency cores; a core that is not listed is a fast one.
static int is_efficiency_core(int cpu) {
    FILE *file = fopen("/sys/devices/cpu_atom/cpus", "r");
    if (file == NULL) {
        return 0;
    }
    int found = 0, from, to;
    while (!found && fscanf(file, "%d", &from) == 1) {
        to = from;
        int separator = fgetc(file);
        if (separator == '-' && fscanf(file, "%d", &to) == 1) {
            separator = fgetc(file);
        }
        found = cpu >= from && cpu <= to;
    }
    fclose(file);
    return found;
}

// Whether `cpu` is the first hardware thread of its core that this process may use.
static int leads_its_core(int cpu, const cpu_set_t *allowed) {
    char path[128];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    const long first = first_number(path);
    return first < 0 || first == cpu || first >= CPU_SETSIZE || !CPU_ISSET((int)first, allowed);
}

// A cgroup's cpu.max ("quota period", or "max period") in whole cores, rounded up; 0: no limit.
static int cores_of_cpu_max(const char *path) {
    FILE *file = fopen(path, "r");
    long long quota = 0, period = 0;
    if (file != NULL) {
        if (fscanf(file, "%lld %lld", &quota, &period) != 2) {
            quota = 0;
        }
        fclose(file);
    }
    return quota > 0 && period > 0 ? (int)((quota + period - 1) / period) : 0;
}

// The tightest limit of this process's cgroup (version 2) and those above it.
static int cgroup_cores(void) {
    char line[PATH_MAX] = "", path[2 * PATH_MAX];
    FILE *file = fopen("/proc/self/cgroup", "r");
    if (file == NULL) {
        return 0;
    }
    char group[PATH_MAX] = "";
    while (fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, "0::", 3) == 0) {
            line[strcspn(line, "\n")] = '\0';
            memcpy(group, line + 3, strlen(line + 3) + 1);
        }
    }
    fclose(file);
    int cores = 0;
    for (;;) {
        snprintf(path, sizeof path, "/sys/fs/cgroup%s/cpu.max", group);
        const int here = cores_of_cpu_max(path);
        if (here > 0 && (cores == 0 || here < cores)) {
            cores = here;
        }
        char *slash = strrchr(group, '/');
        if (slash == NULL) {
            return cores;
        }
        *slash = '\0';
    }
}

int32_t es_os_n_cores(void) {
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) {
        return 1;
    }
    int32_t fast = 0, all = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, &allowed) && leads_its_core(cpu, &allowed)) {
            all++;
            fast += !is_efficiency_core(cpu);
        }
    }
    int32_t cores = fast > 0 ? fast : all;
    const int limit = cgroup_cores();
    cores = limit > 0 && limit < cores ? limit : cores;
    return cores > 0 ? cores : 1;
}
