// Windows: WaitOnAddress, VirtualAlloc, and cores by efficiency class.
#define WIN32_LEAN_AND_MEAN
#define _WIN32_WINNT 0x0a00
#include <windows.h>

#include <stdlib.h>

#include "runtime/os.h"

struct es_os_thread {
    HANDLE handle;
    void (*fn)(void *);
    void *argument;
};

void *es_os_pages(size_t n_bytes, int huge) {
    (void)huge; // large pages need a privilege that few accounts have
    return VirtualAlloc(NULL, n_bytes == 0 ? 1 : n_bytes, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
}

void es_os_pages_free(void *pages, size_t n_bytes) {
    (void)n_bytes;
    if (pages != NULL) {
        VirtualFree(pages, 0, MEM_RELEASE);
    }
}

void es_os_wait(atomic_uint *word, uint32_t expected) {
    WaitOnAddress((volatile VOID *)word, &expected, sizeof expected, INFINITE);
}

void es_os_wake_all(atomic_uint *word) { WakeByAddressAll((PVOID)word); }

static DWORD WINAPI thread_main(LPVOID argument) {
    es_os_thread *thread = argument;
    thread->fn(thread->argument);
    return 0;
}

es_status es_os_thread_start(void (*fn)(void *), void *argument, es_os_thread **out) {
    es_os_thread *thread = calloc(1, sizeof *thread);
    if (thread == NULL) {
        return ES_ERR_MEMORY;
    }
    thread->fn = fn;
    thread->argument = argument;
    thread->handle = CreateThread(NULL, 0, thread_main, thread, 0, NULL);
    if (thread->handle == NULL) {
        free(thread);
        return ES_ERR_SYSTEM;
    }
    *out = thread;
    return ES_OK;
}

void es_os_thread_join(es_os_thread *thread) {
    WaitForSingleObject(thread->handle, INFINITE);
    CloseHandle(thread->handle);
    free(thread);
}

int64_t es_os_read(int64_t file, int64_t offset, void *into, size_t n_bytes) {
    const DWORD most = 1u << 30;
    DWORD moved = 0;
    OVERLAPPED place = {0};
    place.Offset = (DWORD)((uint64_t)offset & 0xffffffffu);
    place.OffsetHigh = (DWORD)((uint64_t)offset >> 32);
    if (!ReadFile((HANDLE)(intptr_t)file, into, n_bytes < most ? (DWORD)n_bytes : most, &moved,
                  &place)) {
        const DWORD error = GetLastError();
        return error == ERROR_HANDLE_EOF ? 0 : -(int64_t)error;
    }
    return (int64_t)moved;
}

int64_t es_os_process_id(void) { return (int64_t)GetCurrentProcessId(); }

uint64_t es_os_nanoseconds(void) {
    LARGE_INTEGER now, frequency;
    QueryPerformanceCounter(&now);
    QueryPerformanceFrequency(&frequency);
    const uint64_t ticks = (uint64_t)now.QuadPart, rate = (uint64_t)frequency.QuadPart;
    return ticks / rate * 1000000000u + ticks % rate * 1000000000u / rate;
}

// The processors that this process is restricted to; all bits where it is not.
static KAFFINITY allowed_processors(void) {
    DWORD_PTR process = 0, system = 0;
    if (!GetProcessAffinityMask(GetCurrentProcess(), &process, &system) || process == 0 ||
        process == system) {
        return ~(KAFFINITY)0; // also where it runs in several groups of processors
    }
    return process;
}

// Physical cores of the highest efficiency class: on a hybrid processor, the fast ones.
int32_t es_os_n_cores(void) {
    DWORD size = 0;
    GetLogicalProcessorInformationEx(RelationProcessorCore, NULL, &size);
    char *buffer = malloc(size > 0 ? size : 1);
    if (buffer == NULL || !GetLogicalProcessorInformationEx(
                              RelationProcessorCore,
                              (PSYSTEM_LOGICAL_PROCESSOR_INFORMATION_EX)(void *)buffer, &size)) {
        free(buffer);
        return 1;
    }
    const KAFFINITY allowed = allowed_processors();
    int32_t count = 0;
    BYTE best = 0;
    for (DWORD at = 0; at < size;) {
        const SYSTEM_LOGICAL_PROCESSOR_INFORMATION_EX *core = (const void *)(buffer + at);
        const BYTE class = core->Processor.EfficiencyClass;
        if ((core->Processor.GroupMask[0].Mask & allowed) != 0) {
            count = class > best ? 1 : count + (class == best);
            best = class > best ? class : best;
        }
        at += core->Size;
    }
    free(buffer);
    return count > 0 ? count : 1;
}
