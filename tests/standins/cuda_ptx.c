#include "libcuda.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* The oldest driver (as cuDriverGetVersion counts) that takes each `.version`. */
static const struct { int major, minor, driver; } versions[] = {
    {6, 0, 9000},  {6, 1, 9010},  {6, 2, 9020},  {6, 3, 10000}, {6, 4, 10010}, {6, 5, 10020},
    {7, 0, 11000}, {7, 1, 11010}, {7, 2, 11020}, {7, 3, 11030}, {7, 4, 11040}, {7, 5, 11050},
    {7, 6, 11060}, {7, 7, 11070}, {7, 8, 11080}, {8, 0, 12000}, {8, 1, 12010}, {8, 2, 12020},
    {8, 3, 12030}, {8, 4, 12040}, {8, 5, 12050}, {8, 6, 12070}, {8, 7, 12080}, {8, 8, 12090},
    {9, 0, 13000},
};

static int driver_needed(int major, int minor)
{
    if (major < 6)
        return versions[0].driver;
    for (size_t i = 0; i < sizeof versions / sizeof *versions; i++)
        if (versions[i].major == major && versions[i].minor == minor)
            return versions[i].driver;
    return 1 << 30;
}

/* The text after `directive` where it begins a line outside comments, else NULL. */
static const char *after_directive(const char *text, const char *directive)
{
    size_t length = strlen(directive);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += strspn(line, " \t\r\n");
        if (!strncmp(line, directive, length) && isspace((unsigned char)line[length]))
            return line + length;
    }
    return NULL;
}

CUresult ptx_check(const char *text, const struct device *device, char *message, size_t size)
{
    int major, minor, target, capability = 10 * device->cc_major + device->cc_minor;
    const char *version = after_directive(text, ".version");
    if (!version || sscanf(version, "%d.%d", &major, &minor) != 2) {
        snprintf(message, size, "ptxas fatal   : Missing .version directive at start of file");
        return INVALID_PTX;
    }
    if (driver_needed(major, minor) > settings.driver_version) {
        snprintf(message, size, "ptxas fatal   : Unsupported .version %d.%d", major, minor);
        return UNSUPPORTED_PTX_VERSION;
    }
    const char *name = after_directive(text, ".target");
    if (!name || sscanf(name, " sm_%d", &target) != 1) {
        snprintf(message, size, "ptxas fatal   : Missing .target directive");
        return INVALID_PTX;
    }
    if (target > capability) {
        snprintf(message, size,
                 "ptxas fatal   : Program with .target 'sm_%d' cannot be compiled to architecture "
                 "'sm_%d'", target, capability);
        return INVALID_PTX;
    }
    return SUCCESS;
}

bool ptx_has_entry(const char *text, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = text; (at = strstr(at, ".entry")); at++) {
        const char *found = at + strlen(".entry");
        found += strspn(found, " \t\r\n");
        if (!strncmp(found, name, length) && !isalnum((unsigned char)found[length])
            && found[length] != '_' && found[length] != '$')
            return true;
    }
    return false;
}
