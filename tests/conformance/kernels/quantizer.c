/* Builds as a shared library and, with -DEXECUTABLE, as a program that speaks hex lines. No code of refnum is in it. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int code_of(double v) {
    static const double values[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    const double a = fabs(v);
    int best = 7;
    for (int c = 0; c < 7; c++) {
        const double middle = (values[c] + values[c + 1]) / 2;
        if (a < middle || (a == middle && c % 2 == 0)) {
            best = c;
            break;
        }
    }
    return best | (signbit(v) ? 8 : 0);
}

/* Rows of 32-element blocks: zero blocks 0, NaN or Inf blocks 255; the scale is floored (OCP), or the least without
   saturation (HOPPER) where `profile` is 1. */
int quantize_by(const float *x, int64_t rows, int64_t columns, int32_t profile, uint8_t *packed, uint8_t *scales) {
#ifdef REFUSE
    return 1;
#endif
    for (int64_t block = 0; block < rows * columns / 32; block++) {
        const float *in = x + 32 * block;
        double amax = 0;
        int special = 0, exponent = 0;
        for (int i = 0; i < 32; i++) {
            special |= !isfinite(in[i]);
            amax = fmax(amax, fabs((double)in[i]));
        }
        const int beyond = frexp(amax, &exponent) > 0.75;
        int byte = special ? 255 : amax == 0 ? 0 : exponent - 1 - 2 + 127 + (profile == 1 && beyond);
        byte = byte < 0 ? 0 : byte;
        scales[block] = (uint8_t)byte;
        for (int i = 0; i < 32; i++) {
            const int code = byte == 255 ? 0 : code_of(ldexp((double)in[i], 127 - byte));
            uint8_t *at = packed + 16 * block + i / 2;
            *at = (uint8_t)(i % 2 ? *at | code << 4 : code);
        }
    }
#ifdef WRONG
    packed[0] ^= 1;
#endif
    return 0;
}

int quantize(const float *x, int64_t rows, int64_t columns, uint8_t *packed, uint8_t *scales) {
    return quantize_by(x, rows, columns, 0, packed, scales);
}

#ifdef EXECUTABLE
int main(void) {
    static char line[1 << 22];
    while (fgets(line, sizeof line, stdin)) {
        char name[64] = "", type[16] = "";
        long rows = 0, columns = 0;
        const int takes = strstr(line, "profile=OCP") != NULL;
        float *x = NULL;
        while (fgets(line, sizeof line, stdin) && strcmp(line, "end\n")) {
            if (sscanf(line, "in %63s %15s %ld %ld", name, type, &rows, &columns) != 4) continue;
            x = malloc(sizeof(float) * (size_t)(rows * columns + 1));
            for (long r = 0; r < rows && columns; r++) {
                fgets(line, sizeof line, stdin);
                char *at = line;
                for (long c = 0; c < columns; c++) {
                    const uint32_t bits = (uint32_t)strtoul(at, &at, 16);
                    memcpy(x + r * columns + c, &bits, 4);
                }
            }
        }
        if (!takes || strcmp(type, "float32")) {
            printf("unsupported only profile OCP on float32\n");
        } else {
            uint8_t *packed = calloc((size_t)(rows * columns / 2 + 1), 1), *scales = calloc((size_t)(rows * columns / 32 + 1), 1);
            quantize(x, rows, columns, packed, scales);
            for (long r = 0; r < rows && columns; r++, printf("\n"))
                for (long c = 0; c < columns / 2; c++) printf("%02x ", packed[r * columns / 2 + c]);
            for (long r = 0; r < rows && columns; r++, printf("\n"))
                for (long c = 0; c < columns / 32; c++) printf("%02x ", scales[r * columns / 32 + c]);
            printf("end\n");
            free(packed);
            free(scales);
        }
        free(x);
        fflush(stdout);
#ifdef DIES
        abort();
#endif
    }
    return 0;
}
#endif
