/* Device memory of the stand-in.
 *
 * Addresses are invented and never reused, so a stray one is an error and never undefined behaviour.
 * A launch is kept as pending work and computed only for the elements that somebody reads, which
 * makes an all-pairs kernel over 100,000 bodies affordable where eight of them are checked.
 */
#include "libcuda.h"

#include <stdlib.h>
#include <string.h>

#define LINE 128 /* of the cache */

struct buffer {
    long users; /* the region that shows it, and each pending work that reads it */
    uint64_t size;
    unsigned char bytes[];
};

struct region {
    struct region *next;
    int device;
    bool of_module;
    CUdeviceptr start;
    struct buffer *buffer;
};

struct pending {
    struct pending *next;
    struct work work;
    struct region *region;
    uint64_t start, end; /* of the output, within the region */
};

/* The last whole result, with its operands held as they were: who asks again need not wait. */
static struct {
    struct work work;
    unsigned char *bytes;
} known;

static struct region *regions;
static struct pending *oldest; /* in order of launch */
static CUdeviceptr next_address = UINT64_C(0x302000000);

static struct buffer *buffer_new(uint64_t size)
{
    struct buffer *buffer = calloc(1, sizeof *buffer + size);
    if (buffer)
        *buffer = (struct buffer){.users = 1, .size = size};
    return buffer;
}

static void buffer_drop(const struct buffer *shared)
{
    struct buffer *buffer = (struct buffer *)shared;
    if (buffer && !--buffer->users)
        free(buffer);
}

static struct region *find(CUdeviceptr address, uint64_t size)
{
    for (struct region *region = regions; region; region = region->next)
        if (address >= region->start && address - region->start <= region->buffer->size
            && size <= region->buffer->size - (address - region->start))
            return region;
    return NULL;
}

CUresult memory_allocate(int device, uint64_t size, CUdeviceptr *address)
{
    struct device *owner = &settings.device[device];
    if (!size)
        return INVALID_VALUE;
    if (size > owner->free_mem - owner->allocated)
        return OUT_OF_MEMORY;
    struct region *region = malloc(sizeof *region);
    struct buffer *buffer = buffer_new(size);
    if (!region || !buffer) {
        free(region);
        free(buffer);
        return OUT_OF_MEMORY;
    }
    *region = (struct region){regions, device, false, next_address, buffer};
    regions = region;
    next_address += (size + 511) / 512 * 512 + 512; /* a gap, so that overruns are seen */
    owner->allocated += size;
    *address = region->start;
    return SUCCESS;
}

CUdeviceptr memory_of_module(int device, uint64_t size)
{
    struct device *owner = &settings.device[device];
    CUdeviceptr address = 0;
    if (!memory_allocate(device, size, &address)) {
        regions->of_module = true;
        owner->allocated -= size;
    }
    return address;
}

static void forget(struct pending **link)
{
    struct pending *done = *link;
    *link = done->next;
    for (int i = 0; i < 2; i++)
        buffer_drop(done->work.in[i].buffer);
    free(done);
}

/* The region's own copy of its bytes, where pending work still needs them as they were. */
static unsigned char *private_bytes(struct region *region)
{
    struct buffer *shared = region->buffer;
    if (shared->users > 1) {
        region->buffer = buffer_new(shared->size);
        if (!region->buffer)
            script_die("out of host memory");
        memcpy(region->buffer->bytes, shared->bytes, shared->size);
        buffer_drop(shared);
    }
    return region->buffer->bytes;
}

static bool same_operand(const struct operand *left, const struct operand *right)
{
    return left->buffer == right->buffer && left->offset == right->offset
           && left->size == right->size;
}

static bool is_known(const struct work *work)
{
    return known.bytes && work->element == known.work.element && work->n == known.work.n
           && work->scalar == known.work.scalar && work->elements == known.work.elements
           && same_operand(&work->in[0], &known.work.in[0])
           && same_operand(&work->in[1], &known.work.in[1]);
}

static void remember(const struct work *work, const unsigned char *output)
{
    uint64_t size = work->elements * work->element_size;
    unsigned char *bytes = malloc(size);
    if (!bytes)
        return;
    memcpy(bytes, output, size);
    for (int i = 0; i < 2; i++) {
        if (work->in[i].buffer)
            ((struct buffer *)work->in[i].buffer)->users++;
        buffer_drop(known.work.in[i].buffer);
    }
    free(known.bytes);
    known.work = *work;
    known.bytes = bytes;
}

static void compute(struct pending *pending, uint64_t first, uint64_t end)
{
    const struct work *work = &pending->work;
    unsigned char *output = private_bytes(pending->region) + pending->start;
    bool whole = !first && end == work->elements;
    if (whole && is_known(work)) {
        memcpy(output, known.bytes, work->elements * work->element_size);
    } else {
        for (uint64_t i = first; i < end; i++)
            work->element(work, i, output + i * work->element_size);
        if (whole)
            remember(work, output);
    }
    for (uint64_t i = first; work->kernel->corrupt && i < end; i++)
        if (work_spoils(work, i, first))
            work_spoil(work, output + i * work->element_size);
}

/* Make [start, end) of a region true; work whose whole output was asked for is then finished. */
static void settle(struct region *region, uint64_t start, uint64_t end)
{
    for (struct pending **link = &oldest; *link;) {
        struct pending *pending = *link;
        bool apart = pending->region != region || pending->start >= end || start >= pending->end;
        if (!apart) {
            uint64_t size = pending->work.element_size;
            uint64_t from = start > pending->start ? start - pending->start : 0;
            uint64_t to = (end < pending->end ? end : pending->end) - pending->start;
            compute(pending, from / size, (to + size - 1) / size);
            if (!from && to == pending->end - pending->start) {
                forget(link);
                continue;
            }
        }
        link = &pending->next;
    }
}

/* Prepare [start, end) of a region for being overwritten: what nobody can read is not computed. */
static void supersede(struct region *region, uint64_t start, uint64_t end)
{
    for (struct pending **link = &oldest; *link;) {
        struct pending *pending = *link;
        if (pending->region == region && pending->start >= start && pending->end <= end) {
            forget(link);
            continue;
        }
        if (pending->region == region && pending->start < end && start < pending->end) {
            compute(pending, 0, pending->work.elements);
            forget(link);
            continue;
        }
        link = &pending->next;
    }
}

static void region_free(struct region **link)
{
    struct region *region = *link;
    supersede(region, 0, region->buffer->size);
    if (!region->of_module)
        settings.device[region->device].allocated -= region->buffer->size;
    *link = region->next;
    buffer_drop(region->buffer);
    free(region);
}

CUresult memory_free(CUdeviceptr address)
{
    COMPUTING;
    if (!address)
        return SUCCESS;
    for (struct region **link = &regions; *link; link = &(*link)->next)
        if ((*link)->start == address) {
            region_free(link);
            return SUCCESS;
        }
    return INVALID_VALUE;
}

void memory_free_device(int device)
{
    for (struct region **link = &regions; *link;)
        if ((*link)->device == device)
            region_free(link);
        else
            link = &(*link)->next;
}

CUresult memory_write(CUdeviceptr address, const void *source, uint64_t size)
{
    COMPUTING;
    struct region *region = find(address, size);
    if (!region)
        return INVALID_VALUE;
    uint64_t start = address - region->start;
    supersede(region, start, start + size);
    /* The same bytes again are no news: what was computed from them still holds. */
    if (memcmp(region->buffer->bytes + start, source, size))
        memcpy(private_bytes(region) + start, source, size);
    return SUCCESS;
}

CUresult memory_read(CUdeviceptr address, void *target, uint64_t size)
{
    COMPUTING;
    struct region *region = find(address, size);
    if (!region)
        return INVALID_VALUE;
    uint64_t start = address - region->start;
    settle(region, start, start + size);
    memcpy(target, region->buffer->bytes + start, size);
    if (settings.corrupt_copy && size)
        *(unsigned char *)target ^= 1;
    return SUCCESS;
}

const void *memory_bytes(CUdeviceptr address, uint64_t size)
{
    struct region *region = find(address, size);
    if (!region)
        return NULL;
    uint64_t start = address - region->start;
    settle(region, start, start + size);
    return region->buffer->bytes + start;
}

const struct work *memory_pending(CUdeviceptr address, uint64_t size)
{
    const struct work *work = NULL;
    for (struct pending *pending = oldest; pending; pending = pending->next)
        if (pending->region->start + pending->start == address
            && pending->end - pending->start == size)
            work = &pending->work;
    return work;
}

CUresult memory_copy(CUdeviceptr target, CUdeviceptr source, uint64_t size)
{
    COMPUTING;
    struct region *from = find(source, size), *to = find(target, size);
    if (!from || !to)
        return INVALID_VALUE;
    uint64_t start = target - to->start;
    settle(from, source - from->start, source - from->start + size);
    supersede(to, start, start + size);
    bool whole = size == from->buffer->size && size == to->buffer->size;
    if (whole && !settings.corrupt_device_copy) { /* seen as a copy: whoever writes gets his own */
        from->buffer->users++;
        buffer_drop(to->buffer);
        to->buffer = from->buffer;
        return SUCCESS;
    }
    unsigned char *bytes = private_bytes(to) + start;
    memmove(bytes, from->buffer->bytes + (source - from->start), size);
    if (settings.corrupt_device_copy && size)
        *bytes ^= 1;
    return SUCCESS;
}

void memory_spoil(CUdeviceptr address)
{
    struct region *region = find(address, 1);
    private_bytes(region)[address - region->start] ^= 1;
}

int memory_device(CUdeviceptr address, uint64_t size)
{
    const struct region *region = find(address, size);
    return region ? region->device : -1;
}

CUresult memory_fill(CUdeviceptr address, uint32_t value, uint64_t count)
{
    COMPUTING;
    struct region *region = count > UINT64_MAX / 4 ? NULL : find(address, 4 * count);
    if (!region || address % 4)
        return INVALID_VALUE;
    uint64_t start = address - region->start;
    supersede(region, start, start + 4 * count);
    unsigned char *bytes = private_bytes(region) + start;
    for (uint64_t i = 0; i < count; i++)
        memcpy(bytes + 4 * i, &value, 4);
    return SUCCESS;
}

CUresult memory_add(CUdeviceptr address, uint32_t delta)
{
    struct region *region = find(address, 4);
    if (!region || address % 4)
        return ILLEGAL_ADDRESS;
    uint64_t start = address - region->start;
    settle(region, start, start + 4);
    unsigned char *bytes = private_bytes(region) + start;
    uint32_t value;
    memcpy(&value, bytes, 4);
    value += delta;
    memcpy(bytes, &value, 4);
    return SUCCESS;
}

CUresult memory_link(CUdeviceptr ring, uint64_t n, uint32_t factor, uint32_t step)
{
    COMPUTING;
    struct region *region = find(ring, n * LINE);
    if (!region || ring % LINE)
        return ILLEGAL_ADDRESS;
    unsigned char *bytes = private_bytes(region) + (ring - region->start);
    for (uint64_t line = 0; line < n; line++) {
        CUdeviceptr next = ring + ((uint32_t)line * factor + step) % n * LINE;
        memcpy(bytes + line * LINE, &next, sizeof next);
    }
    return SUCCESS;
}

CUresult memory_chase(CUdeviceptr place, uint64_t loads, uint64_t *size)
{
    COMPUTING;
    struct region *own = find(place, 8), *region = NULL;
    CUdeviceptr next;
    if (!own || place % 8)
        return ILLEGAL_ADDRESS;
    unsigned char *bytes = private_bytes(own) + (place - own->start);
    memcpy(&next, bytes, sizeof next);
    for (uint64_t load = 0; load < loads; load++) {
        if (!region || next < region->start || next - region->start + 8 > region->buffer->size)
            region = find(next, 8);
        if (!region)
            return ILLEGAL_ADDRESS;
        memcpy(&next, region->buffer->bytes + (next - region->start), sizeof next);
        *size = region->buffer->size;
    }
    memcpy(bytes, &next, sizeof next);
    return SUCCESS;
}

const void *operand_bytes(const struct operand *operand)
{
    return operand->buffer->bytes + operand->offset;
}

/* Hold on to the bytes of an operand as they are now. */
static bool take(struct operand *operand)
{
    struct region *region = find(operand->address, operand->size);
    if (!region)
        return false;
    operand->offset = operand->address - region->start;
    settle(region, operand->offset, operand->offset + operand->size);
    region->buffer->users++;
    operand->buffer = region->buffer;
    return true;
}

CUresult memory_submit(const struct work *work, CUdeviceptr output)
{
    COMPUTING;
    uint64_t size = work->elements * work->element_size;
    struct region *region = find(output, size);
    struct pending *pending = calloc(1, sizeof *pending), **last = &oldest;
    if (!pending)
        script_die("out of host memory");
    pending->work = *work;
    bool valid = region && output % work->element_size == 0;
    for (int i = 0; i < 2 && valid; i++)
        if (work->in[i].size)
            valid = take(&pending->work.in[i]);
    if (!valid) {
        forget(&pending);
        return ILLEGAL_ADDRESS;
    }
    pending->region = region;
    pending->start = output - region->start;
    pending->end = pending->start + size;
    supersede(region, pending->start, pending->end);
    while (*last)
        last = &(*last)->next;
    *last = pending;
    return SUCCESS;
}
