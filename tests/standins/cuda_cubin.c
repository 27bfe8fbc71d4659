/* Compiled modules, which are ELF files with the architecture in their flags. */
#include "libcuda.h"

#include <elf.h>
#include <stdio.h>
#include <string.h>

bool is_cubin(const void *image)
{
    const unsigned char *bytes = image; /* a text may end anywhere */
    return !strncmp(image, ELFMAG, SELFMAG) && bytes[EI_CLASS] == ELFCLASS64;
}

size_t cubin_size(const void *image)
{
    const Elf64_Ehdr *header = image;
    size_t sections = header->e_shoff + (size_t)header->e_shnum * header->e_shentsize;
    size_t programs = header->e_phoff + (size_t)header->e_phnum * header->e_phentsize;
    return sections > programs ? sections : programs;
}

int cubin_architecture(const void *image)
{
    const Elf64_Ehdr *header = image;
    return header->e_flags >> (header->e_ident[EI_ABIVERSION] >= 8 ? 8 : 0) & 0xff;
}

CUresult cubin_check(const void *image, const struct device *device, char *message, size_t size)
{
    int architecture = cubin_architecture(image);
    if (architecture / 10 == device->cc_major && architecture % 10 <= device->cc_minor)
        return SUCCESS;
    snprintf(message, size, "no code for sm_%d%d in a module of sm_%d", device->cc_major,
             device->cc_minor, architecture);
    return NO_BINARY_FOR_GPU;
}
