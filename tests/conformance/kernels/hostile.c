/* A quantiser's library that does not behave; which way is chosen when it is compiled. */
#include <stdint.h>
#include <string.h>
#include <stdlib.h>

int quantize(const float *x, int64_t rows, int64_t columns, uint8_t *packed, uint8_t *scales) {
#ifdef HANGS
    for (volatile int i = 0;; i++) {}
#endif
#ifdef SEGFAULTS
    *(volatile int *)8 = 1;
#endif
#ifdef EXITS
    _Exit(0);
#endif
    memset(packed, 0, rows * columns / 2);
    memset(scales, 0, rows * columns / 32);
#ifdef WRITES_AFTER
    packed[rows * columns / 2] = 1;
#endif
#ifdef WRITES_BEFORE_INPUT
    ((volatile uint8_t *)x)[-1] = 1;
#endif
    return 0;
}
