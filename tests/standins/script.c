#define _GNU_SOURCE
#include "script.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MAX_RULES 64

struct script_rule {
    enum { FAIL, HANG, STALL, CRASH, SEGFAULT, DELAY, KINDS } kind;
    char function[64];
    int code;   /* FAIL; DELAY: milliseconds */
    char *path; /* STALL */
    int64_t after, times;
};

/* What each kind wants between the function and AFTER, and whether TIMES may follow. */
static const struct { const char *key, *wants; bool counted; } kinds[KINDS] = {
    [FAIL] = {"fail", "CODE", true},
    [HANG] = {"hang", NULL, false},
    [STALL] = {"stall", "PATH", false},
    [CRASH] = {"crash", NULL, false},
    [SEGFAULT] = {"segfault", NULL, false},
    [DELAY] = {"delay", "MS", true},
};

static struct script_rule rules[MAX_RULES];
static int rule_count;
static int log_descriptor = -1;
static char logged[64]; /* the only function in the log; empty for all */
static bool loaded;
static char library_path[PATH_MAX];

void script_die(const char *format, ...)
{
    va_list arguments;
    fprintf(stderr, "stand-in %s: ", library_name);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    abort();
}

int64_t now_ns(void)
{
    if (virtual_clock_now)
        return virtual_clock_now();
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

void spin(int64_t since, int64_t ns)
{
    if (virtual_clock_to)
        virtual_clock_to(since + ns);
    while (now_ns() - since < ns)
        ;
}

void script_leave(struct script_call **call)
{
    (void)call;
    if (virtual_clock_call)
        virtual_clock_call();
}

int64_t script_integer(const char *key, const char *text)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 0);
    if (errno || end == text || *end)
        script_die("%s: not an integer: '%s'", key, text);
    return value;
}

uint64_t script_unsigned(const char *key, const char *text)
{
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 0);
    if (errno || end == text || *end)
        script_die("%s: not a 64-bit integer: '%s'", key, text);
    return value;
}

double script_real(const char *key, const char *text)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !isfinite(value))
        script_die("%s: not a number: '%s'", key, text);
    return value;
}

void script_text(const char *key, const char *text, char *buffer, int size)
{
    if (snprintf(buffer, size, "%s", text) >= size)
        script_die("%s: longer than %d characters: '%s'", key, size - 1, text);
}

bool script_device_key(const char *key, int limit, int *index, const char **field)
{
    int length = 0;
    if (sscanf(key, "device.%d.%n", index, &length) != 1 || !length)
        return false;
    if (*index < 0 || *index >= limit)
        script_die("%s: the device index must be below %d", key, limit);
    *field = key + length;
    return true;
}

void script_function(const char *key, const char *name)
{
    void *self = dlopen(library_path, RTLD_NOW | RTLD_NOLOAD);
    if (!self)
        script_die("cannot open itself: %s", dlerror());
    void *symbol = dlsym(self, name);
    Dl_info info;
    bool ours = symbol && dladdr(symbol, &info) && !strcmp(info.dli_fname, library_path);
    dlclose(self);
    if (!ours)
        script_die("%s: no function '%s' in this library", key, name);
}

static bool common_line(const char *key, char *value)
{
    if (!strcmp(key, "log")) {
        char *name, *path = strtok_r(value, " \t", &name);
        log_descriptor = path ? open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644) : -1;
        if (log_descriptor < 0)
            script_die("log: cannot open '%s': %s", value, strerror(errno));
        if (*name)
            script_function(key, name);
        script_text(key, name, logged, sizeof logged);
        return true;
    }
    int kind = 0;
    while (kind < KINDS && strcmp(key, kinds[kind].key))
        kind++;
    if (kind == KINDS)
        return false;
    if (rule_count == MAX_RULES)
        script_die("more than %d rules", MAX_RULES);
    struct script_rule *rule = &rules[rule_count++];
    char *rest, *name = strtok_r(value, " \t", &rest);
    const char *wants = kinds[kind].wants;
    char *what = wants ? strtok_r(NULL, " \t", &rest) : NULL;
    char *after = strtok_r(NULL, " \t", &rest);
    char *times = kinds[kind].counted ? strtok_r(NULL, " \t", &rest) : NULL;
    if (!name || (wants && !what) || strtok_r(NULL, " \t", &rest))
        script_die("%s: expected FUNCTION %s [AFTER%s]", key, wants ? wants : "",
                   kinds[kind].counted ? " [TIMES]" : "");
    script_function(key, name);
    script_text(key, name, rule->function, sizeof rule->function);
    rule->kind = kind;
    if (kind == FAIL || kind == DELAY)
        rule->code = (int)script_integer(key, what);
    if (kind == STALL)
        rule->path = strdup(what);
    rule->after = after ? script_integer(key, after) : 0;
    rule->times = times ? script_integer(key, times) : INT64_MAX;
    return true;
}

static FILE *open_script(void)
{
    Dl_info info;
    char name[PATH_MAX + 8], real[PATH_MAX];
    if (!dladdr((void *)open_script, &info))
        script_die("cannot find its own file");
    script_text("path", info.dli_fname, library_path, sizeof library_path);
    snprintf(name, sizeof name, "%s.script", library_path);
    FILE *script = fopen(name, "re");
    if (!script && realpath(library_path, real)) { /* loaded through a link, as WSL's are */
        snprintf(name, sizeof name, "%s.script", real);
        script = fopen(name, "re");
    }
    return script;
}

void script_load(void)
{
    if (loaded)
        return;
    loaded = true;
    FILE *script = open_script();
    if (!script)
        return;
    char line[4096];
    while (fgets(line, sizeof line, script)) {
        line[strcspn(line, "#\n")] = 0;
        char *key = line + strspn(line, " \t");
        if (!*key)
            continue;
        char *value = key + strcspn(key, " \t");
        if (*value)
            *value++ = 0;
        value += strspn(value, " \t");
        for (char *end = value + strlen(value); end > value && strchr(" \t", end[-1]);)
            *--end = 0;
        if (!*value)
            script_die("%s: no value", key);
        if (!common_line(key, value) && !library_line(key, value))
            script_die("unknown key '%s'", key);
    }
    fclose(script);
}

static void resolve(struct script_call *call, const char *function)
{
    script_load();
    call->resolved = true;
    for (int i = 0; i < rule_count; i++) {
        const struct script_rule **slots[] = {
            [FAIL] = &call->fail, [HANG] = &call->hang, [STALL] = &call->stall,
            [CRASH] = &call->crash, [SEGFAULT] = &call->segfault, [DELAY] = &call->delay};
        const struct script_rule **slot = slots[rules[i].kind];
        if (strcmp(rules[i].function, function))
            continue;
        if (*slot)
            script_die("two rules of one kind for %s", function);
        *slot = &rules[i];
    }
}

static bool applies(const struct script_rule *rule, long before)
{
    return rule && before >= rule->after && before - rule->after < rule->times;
}

static void stall(const char *path)
{
    int descriptor;
    ssize_t got;
    char byte;
    do
        descriptor = open(path, O_RDONLY | O_CLOEXEC);
    while (descriptor < 0 && errno == EINTR);
    if (descriptor < 0 && (errno == ENOENT || errno == EACCES))
        script_die("stall: cannot open '%s': %s", path, strerror(errno));
    if (descriptor < 0) /* the file system was taken away, which ends the wait too */
        return;
    do
        got = read(descriptor, &byte, 1);
    while (got < 0 && errno == EINTR);
    close(descriptor);
}

static void pass_ms(int ms)
{
    struct timespec rest = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
    while (nanosleep(&rest, &rest) && errno == EINTR)
        ;
}

int script_enter(struct script_call *call, const char *function)
{
    if (!call->resolved)
        resolve(call, function);
    long before = call->calls++;
    if (log_descriptor >= 0 && (!*logged || !strcmp(logged, function))) {
        char line[80];
        int length = snprintf(line, sizeof line, "%s\n", function);
        if (write(log_descriptor, line, length) != length)
            script_die("log: %s", strerror(errno));
    }
    if (applies(call->crash, before))
        abort();
    if (applies(call->segfault, before))
        *(volatile char *volatile)NULL = 0;
    if (applies(call->delay, before))
        pass_ms(call->delay->code);
    if (applies(call->hang, before))
        for (;;)
            pause();
    if (applies(call->stall, before))
        stall(call->stall->path);
    return applies(call->fail, before) ? call->fail->code : 0;
}
