/* The script keys of the stand-in libcuda.so.1; the defaults stand below and in cuda_devices.c.
 *
 *   driver_version N                as cuDriverGetVersion counts: 12080 is CUDA 12.8
 *   devices N                       0 makes cuInit say so
 *   device.I.name|uuid|pci_bus_id TEXT
 *   device.I.sm_count|cc_major|cc_minor|l2_bytes|clock_khz|memory_clock_khz|memory_bus_bits N
 *   device.I.mps 0|1                contexts on it are shared through the multi-process service
 *   device.I.mig PROFILE            it is an instance, and its name ends in " MIG PROFILE"
 *   device.I.mig_uuid TEXT          of the instance; device.I.uuid is that of the whole GPU
 *   device.I.launch_ns N, device.I.RATE R    as below, for this GPU alone; RATE is kernel_ns,
 *                                   a load's, and whatever ends in _per_second
 *   device.I.total_mem|free_mem BYTES
 *   peer_access 0|1                 whether GPUs may access each other's memory (1)
 *   pinned_limit BYTES              what cuMemHostAlloc gives in all
 *
 * Real time, spun away inside the call:
 *   launch_ns, first_launch_ns, sync_ns (cuStreamSynchronize), init_ns, module_load_ns N
 *   context_ns N                    creating a primary context
 *   copy_ns (each cuMemcpy...), event_ns (cuEventRecord), graph_launch_ns (cuGraphLaunch),
 *   graph_node_ns (each node of the graph, in the same call), query_ns (cuStreamQuery) N
 *   blocking_ns N                   waking up after a wait for an event that is made to block
 *   time_line 0|1                   1: the GPU works in real time too. What is submitted begins when
 *                                   the call's own time is over and what was before it is done; waits
 *                                   end sync_ns after it has ended. Default: 1 where
 *                                   virtual_clock.c is loaded, in whose time all of this happens
 *
 *   launch_ns_second N SHARE        that share of launches takes N instead of launch_ns
 *   launch_tail_ns N SHARE          that share of the others takes longer by a Pareto variate of
 *                                   scale N and shape 1.5 (median 0.59 N, mean 2 N), 100 N at most
 *   idle_launches, idle_launch_ns N the first so many launches of a process, and what they take
 * Which launches those are is the same in every process: it follows from their number alone.
 *
 * Processes that launch take a place in a row, one after the other, and differ by it; another SEED is
 * another row. All launches of one, graphs too, take
 *   noise SEED SIGMA PATH           a log-normal variate times as long; PATH counts the places
 *
 * Virtual time, read through events:
 *   kernel_ns N                     each gpud_empty and gpud_count
 *   dram_load_ns, l2_load_ns R      each load of gpud_chase: the latter in memory of l2_bytes at most
 *   event_gpu_ns N                  each recorded event, after its moment
 *   copy_gpu_ns N                   each copy, besides its bytes
 *   flops_per_second R              gpud_nbody: 20 n^2 flops; gpud_matmul, _16, _128: 2 n^3
 *   tensor_flops_per_second R       gpud_matmul_tensor: 2 n^3; fp64_flops_per_second, tf32_..., bf16_...
 *                                   and int8_operations_per_second: gpud_matmul_fp64 and the others
 *   bytes_per_second R              gpud_triad: 48 n4 bytes; cuMemsetD32: 4 bytes a word;
 *                                   gpud_sums_...: each element once
 *   h2d_bytes_per_second, d2h_bytes_per_second, or host_copy_bytes_per_second for both R
 *   pageable_h2d_bytes_per_second, pageable_d2h_bytes_per_second R
 *                                   to and from what cuMemHostAlloc did not give; default: the same
 *   peer_write_bytes_per_second, peer_read_bytes_per_second R    between two GPUs, to and from the
 *                                   one that is not the stream's; staged_write_..., staged_read_...
 *                                   without access
 *   peer_gpu_ns, staged_gpu_ns N    each of them, besides its bytes
 *   d2d_bytes_per_second R          copies on the device: twice their size; default: bytes_per_second
 *
 *   warmup_kernels N, warmup_factor R  the first kernel of a process takes R times as long, the N
 *                                   first ones linearly less, as clocks rise under load
 *
 *   sm_clock_hertz R                of the multiprocessors, as kernels with gpud_ends see it
 *   clock_step_kernels N, clock_step R  the first N of a process run at R times that clock
 *   timer_tick_ns N                 in which their timer counts; its readings are whole ticks
 *   compiler_factor R               what the driver compiled takes R times as long, a cubin does not
 *   compiled KERNEL REGISTERS [LOCAL_BYTES]  what the driver's compiler makes of it
 *
 *   ledger PATH                     append what was used, one JSON line a context: cuda_ledger.c
 *
 * Wrong results, for tests of verification:
 *   corrupt KERNEL [ELEMENT]        one element, by default the first of whatever is read back;
 *                                   gpud_count counts each launch twice, gpud_chase leaves out a link
 *   corrupt KERNEL block B          every element that block B of a matrix product computes, row by row
 *   corrupt copy                    the first byte of every copy to the host
 *   corrupt device_copy             the first byte of every copy on the device
 *   corrupt peer_copy|staged_copy [BYTE]  that byte, by default the first, of every copy between GPUs
 */
#include "libcuda.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const char *const library_name = "libcuda.so.1";

struct settings settings = {
    .driver_version = 12080,
    .devices = 1,
    .pinned_limit = INT64_C(1) << 30,
    .peer_access = 1,
    .corrupt_peer_byte = -1,
    .corrupt_staged_byte = -1,
    .time_line = -1,
    .warmup_factor = 1,
    .sm_clock_hertz = 2.4e9,
    .clock_step = 1,
    .compiler_factor = 1,
    .timer_tick_ns = 32,
    .rates.kernel_ns = 1500,
    .rates.flops_per_second = 1e13,
    .rates.tensor_flops_per_second = 1e14,
    .rates.fp64_flops_per_second = 2e11,
    .rates.tf32_flops_per_second = 5e13,
    .rates.bf16_flops_per_second = 1e14,
    .rates.int8_operations_per_second = 2e14,
    .rates.bytes_per_second = 5e11,
    .rates.h2d_bytes_per_second = 2.5e10,
    .rates.d2h_bytes_per_second = 2.5e10,
    .rates.peer_write_bytes_per_second = 2e10,
    .rates.peer_read_bytes_per_second = 2e10,
    .rates.staged_write_bytes_per_second = 1e10,
    .rates.staged_read_bytes_per_second = 1e10,
    .rates.dram_load_ns = 600,
    .rates.l2_load_ns = 250,
};

bool rates_line(const char *key, const char *field, const char *value, struct rates *rates)
{
    const struct { const char *field; double *target; } known[] = {
        {"kernel_ns", &rates->kernel_ns},
        {"flops_per_second", &rates->flops_per_second},
        {"tensor_flops_per_second", &rates->tensor_flops_per_second},
        {"fp64_flops_per_second", &rates->fp64_flops_per_second},
        {"tf32_flops_per_second", &rates->tf32_flops_per_second},
        {"bf16_flops_per_second", &rates->bf16_flops_per_second},
        {"int8_operations_per_second", &rates->int8_operations_per_second},
        {"bytes_per_second", &rates->bytes_per_second},
        {"h2d_bytes_per_second", &rates->h2d_bytes_per_second},
        {"d2h_bytes_per_second", &rates->d2h_bytes_per_second},
        {"pageable_h2d_bytes_per_second", &rates->pageable_h2d_bytes_per_second},
        {"pageable_d2h_bytes_per_second", &rates->pageable_d2h_bytes_per_second},
        {"d2d_bytes_per_second", &rates->d2d_bytes_per_second},
        {"peer_write_bytes_per_second", &rates->peer_write_bytes_per_second},
        {"peer_read_bytes_per_second", &rates->peer_read_bytes_per_second},
        {"staged_write_bytes_per_second", &rates->staged_write_bytes_per_second},
        {"staged_read_bytes_per_second", &rates->staged_read_bytes_per_second},
        {"dram_load_ns", &rates->dram_load_ns},
        {"l2_load_ns", &rates->l2_load_ns},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(field, known[i].field)) {
            *known[i].target = script_real(key, value);
            if (*known[i].target <= 0)
                script_die("%s: must be above 0", key);
            return true;
        }
    return false;
}

static void corrupt_line(char *value)
{
    char *rest, *name = strtok_r(value, " \t", &rest), *element = strtok_r(NULL, " \t", &rest);
    struct kernel *kernel = kernel_named(name);
    char *block = element && !strcmp(element, "block") ? strtok_r(NULL, " \t", &rest) : NULL;
    bool copy = !strcmp(name, "copy"), device_copy = !strcmp(name, "device_copy");
    int64_t *byte = !strcmp(name, "peer_copy")     ? &settings.corrupt_peer_byte
                    : !strcmp(name, "staged_copy") ? &settings.corrupt_staged_byte
                                                   : NULL;
    if (strtok_r(NULL, " \t", &rest) || (!kernel && !byte && ((!copy && !device_copy) || element)))
        script_die("corrupt: expected KERNEL [ELEMENT or block B], copy, device_copy, peer_copy or "
                   "staged_copy, not '%s'", name);
    if (byte)
        *byte = element ? script_integer("corrupt", element) : 0;
    settings.corrupt_copy |= copy;
    settings.corrupt_device_copy |= device_copy;
    if (!kernel)
        return;
    kernel->corrupt = true;
    if (block)
        kernel->corrupt_block = script_integer("corrupt", block);
    else if (element)
        kernel->corrupt_element = script_integer("corrupt", element);
}

static void compiled_line(char *value)
{
    char *rest, *name = strtok_r(value, " \t", &rest), *registers = strtok_r(NULL, " \t", &rest);
    char *local = strtok_r(NULL, " \t", &rest);
    struct kernel *kernel = kernel_named(name);
    if (!kernel || !registers)
        script_die("compiled: expected KERNEL REGISTERS [LOCAL_BYTES], not '%s'", name);
    kernel->registers = (int)script_integer("compiled", registers);
    if (local)
        kernel->local_bytes = (int)script_integer("compiled", local);
}

static double real_between(const char *key, const char *text, double least, double most)
{
    double value = script_real(key, text);
    if (value < least || value > most)
        script_die("%s: must be from %g to %g", key, least, most);
    return value;
}

/* `N SHARE`: nanoseconds, and which part of all launches. */
static void share_line(const char *key, char *value, double *ns, double *share)
{
    char *rest, *first = strtok_r(value, " \t", &rest), *second = strtok_r(NULL, " \t", &rest);
    if (!second || strtok_r(NULL, " \t", &rest))
        script_die("%s: expected N SHARE", key);
    *ns = real_between(key, first, 0, INFINITY);
    *share = real_between(key, second, 0, 1);
}

static void noise_line(const char *key, char *value)
{
    char *rest, *words[3];
    for (int i = 0; i < 3; i++)
        words[i] = strtok_r(i ? NULL : value, " \t", &rest);
    if (!words[2] || strtok_r(NULL, " \t", &rest))
        script_die("%s: expected SEED SIGMA PATH", key);
    noise_open(script_integer(key, words[0]), real_between(key, words[1], 0, 1), words[2]);
}

bool library_line(const char *key, char *value)
{
    static const struct { const char *key; int64_t *target; } integers[] = {
        {"launch_ns", &settings.launch_ns},
        {"first_launch_ns", &settings.first_launch_ns},
        {"sync_ns", &settings.sync_ns},
        {"init_ns", &settings.init_ns},
        {"context_ns", &settings.context_ns},
        {"module_load_ns", &settings.module_load_ns},
        {"graph_launch_ns", &settings.graph_launch_ns},
        {"graph_node_ns", &settings.graph_node_ns},
        {"copy_ns", &settings.copy_ns},
        {"event_ns", &settings.event_ns},
        {"event_gpu_ns", &settings.event_gpu_ns},
        {"time_line", &settings.time_line},
        {"copy_gpu_ns", &settings.copy_gpu_ns},
        {"peer_gpu_ns", &settings.peer_gpu_ns},
        {"staged_gpu_ns", &settings.staged_gpu_ns},
        {"peer_access", &settings.peer_access},
        {"query_ns", &settings.query_ns},
        {"blocking_ns", &settings.blocking_ns},
        {"idle_launches", &settings.idle_launches},
        {"idle_launch_ns", &settings.idle_launch_ns},
        {"warmup_kernels", &settings.warmup_kernels},
        {"clock_step_kernels", &settings.clock_step_kernels},
        {"timer_tick_ns", &settings.timer_tick_ns},
        {"pinned_limit", &settings.pinned_limit},
    };
    int index;
    const char *field;
    for (size_t i = 0; i < sizeof integers / sizeof *integers; i++)
        if (!strcmp(key, integers[i].key)) {
            *integers[i].target = script_integer(key, value);
            return true;
        }
    if (rates_line(key, key, value, &settings.rates))
        return true;
    if (!strcmp(key, "host_copy_bytes_per_second")) {
        library_line("h2d_bytes_per_second", value);
        library_line("d2h_bytes_per_second", value);
    } else if (!strcmp(key, "launch_ns_second")) {
        share_line(key, value, &settings.launch_ns_second, &settings.second_share);
    } else if (!strcmp(key, "launch_tail_ns")) {
        share_line(key, value, &settings.tail_ns, &settings.tail_share);
    } else if (!strcmp(key, "noise")) {
        noise_line(key, value);
    } else if (!strcmp(key, "warmup_factor")) {
        settings.warmup_factor = real_between(key, value, 1, INFINITY);
    } else if (!strcmp(key, "sm_clock_hertz")) {
        settings.sm_clock_hertz = real_between(key, value, 0, INFINITY);
    } else if (!strcmp(key, "clock_step")) {
        settings.clock_step = real_between(key, value, 0, 1);
    } else if (!strcmp(key, "compiler_factor")) {
        settings.compiler_factor = real_between(key, value, 0, INFINITY);
    } else if (!strcmp(key, "compiled")) {
        compiled_line(value);
    } else if (!strcmp(key, "ledger")) {
        ledger_open(value);
    } else if (!strcmp(key, "driver_version")) {
        settings.driver_version = (int)script_integer(key, value);
    } else if (!strcmp(key, "devices")) {
        settings.devices = (int)script_integer(key, value);
        if (settings.devices < 0 || settings.devices > MAX_DEVICES)
            script_die("devices: at most %d", MAX_DEVICES);
    } else if (!strcmp(key, "corrupt")) {
        corrupt_line(value);
    } else {
        return script_device_key(key, MAX_DEVICES, &index, &field)
               && device_line(key, field, &settings.device[index], value);
    }
    return true;
}
