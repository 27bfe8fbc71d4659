/* The driver's own words for its codes. */
#include "libcuda.h"

static const struct { CUresult code; const char *name, *text; } errors[] = {
#define ERROR(code, name, text) {code, #name, text},
#include "cuda_errors.def"
};

const char *error_name(CUresult code)
{
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == code)
            return errors[i].name;
    return NULL;
}

const char *error_text(CUresult code)
{
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == code)
            return errors[i].text;
    return NULL;
}
