/* Drives a libFuzzer target without libFuzzer, so that gcc is enough.

       PROGRAM [-runs=N] [-max_total_time=SECONDS] [-seed=N] [-dict=FILE] [-artifact_prefix=PATH] [FOLDER | FILE ...]

   Files are run once. Folders are read as the corpus, which is then mutated. Where the code under test is compiled with
   gcc -fsanitize-coverage=trace-pc, inputs that reach something new join the corpus (in memory only). The input that
   was under way when the program died is written to PATHcrash. */
#include <dirent.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define LONGEST 4096
#define CORPUS 20000
#define WORDS 200
#define MAP 65536

struct octets {
    uint8_t *data;
    size_t len;
};

static struct octets corpus[CORPUS], words[WORDS];
static size_t corpus_count, words_count;
static uint8_t input[LONGEST];
static size_t input_len;
static char crash_path[1024] = "crash";
static uint64_t random_state = 1;

/* ---- coverage: pairs of places reached one after the other, and how often ---- */

static uint8_t hits[MAP], seen[MAP];
static uintptr_t last_place;

void __sanitizer_cov_trace_pc(void);
void __sanitizer_cov_trace_pc(void)
{
    uintptr_t place = (uintptr_t)__builtin_return_address(0);
    place = (place ^ place >> 13) & (MAP - 1);
    uint8_t *hit = &hits[place ^ last_place];
    *hit += *hit < 255;
    last_place = place >> 1;
}

/* Did the last run reach something new? Counts are taken as powers of two. */
static int something_new(void)
{
    int fresh = 0;
    for (size_t i = 0; i < MAP; i += 8) {
        uint64_t eight;
        memcpy(&eight, hits + i, 8);
        for (size_t k = i; eight && k < i + 8; k++) {
            uint8_t bit = 0;
            for (uint8_t n = hits[k]; n; n >>= 1)
                bit = bit ? (uint8_t)(bit << 1) : 1;
            fresh |= bit & ~seen[k];
            seen[k] |= bit;
        }
    }
    memset(hits, 0, sizeof hits);
    last_place = 0;
    return fresh;
}

static unsigned places_seen(void)
{
    unsigned count = 0;
    for (size_t i = 0; i < MAP; i++)
        count += seen[i] != 0;
    return count;
}

/* ---- inputs ---- */

static uint32_t below(uint32_t n)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return n ? (uint32_t)(random_state >> 16) % n : 0;
}

static void keep(const uint8_t *data, size_t len)
{
    if (corpus_count == CORPUS || len > LONGEST)
        return;
    struct octets copy = {malloc(len + 1), len};
    if (!copy.data)
        return;
    memcpy(copy.data, data, len);
    corpus[corpus_count++] = copy;
}

/* Replace [at, at + gone) of the input by some octets. */
static void splice(size_t at, size_t gone, const uint8_t *octets, size_t len)
{
    if (at > input_len)
        at = input_len;
    if (gone > input_len - at)
        gone = input_len - at;
    if (input_len - gone + len > LONGEST)
        return;
    memmove(input + at + len, input + at + gone, input_len - at - gone);
    memmove(input + at, octets, len);
    input_len += len - gone;
}

static void mutate(void)
{
    struct octets base = corpus[below((uint32_t)corpus_count)];
    memcpy(input, base.data, base.len);
    input_len = base.len;
    for (unsigned changes = 1 + below(5); changes; changes--) {
        uint8_t one = (uint8_t)below(256), some[64];
        size_t at = below((uint32_t)input_len + 1), size = 1 + below(16);
        struct octets word = words_count ? words[below((uint32_t)words_count)] : (struct octets){(uint8_t *)"\n", 1};
        struct octets other = corpus[below((uint32_t)corpus_count)];
        size_t from = below((uint32_t)other.len + 1);
        switch (below(8)) {
        case 0: splice(at, 1, &one, 1); break;
        case 1: splice(at, 0, word.data, word.len); break;
        case 2: splice(at, word.len, word.data, word.len); break;
        case 3: splice(at, size, input, 0); break;
        case 4: splice(at, LONGEST, other.data + from, other.len - from); break;
        case 5: splice(below(4), 1, &one, 1); break; /* the octets that choose the options */
        case 6: one = at < input_len ? (uint8_t)(input[at] ^ 1u << below(8)) : 0; splice(at, 1, &one, 1); break;
        default:
            size = at + size > input_len ? input_len - at : size;
            memcpy(some, input + at, size);
            splice(at, 0, some, size);
        }
    }
}

static size_t read_file(const char *path, uint8_t *data, size_t room)
{
    FILE *file = fopen(path, "rb");
    size_t len = file ? fread(data, 1, room, file) : 0;
    if (!file || fclose(file))
        perror(path);
    return len;
}

static void read_folder(const char *path)
{
    char name[4096];
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        struct stat about;
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        if (!stat(name, &about) && S_ISREG(about.st_mode))
            keep(input, read_file(name, input, sizeof input));
    }
    if (folder)
        closedir(folder);
}

/* Lines of the form "octets", with \xHH and \\ as escapes. */
static void read_words(const char *path)
{
    char line[512];
    FILE *file = fopen(path, "r");
    while (file && words_count < WORDS && fgets(line, sizeof line, file)) {
        uint8_t word[sizeof line];
        size_t len = 0;
        for (char *c = line + 1; *line == '"' && *c && *c != '"'; c++) {
            unsigned octet = (unsigned char)*c;
            if (c[0] == '\\' && c[1] == 'x' && sscanf(c + 2, "%2x", &octet) == 1)
                c += 3;
            else if (c[0] == '\\' && c[1])
                octet = (unsigned char)*++c;
            word[len++] = (uint8_t)octet;
        }
        if (len && (words[words_count].data = malloc(len))) {
            memcpy(words[words_count].data, word, len);
            words[words_count++].len = len;
        }
    }
    if (file)
        fclose(file);
}

/* ---- running ---- */

static void on_signal(int number)
{
    FILE *file = fopen(crash_path, "wb");
    if (file) {
        fwrite(input, 1, input_len, file);
        fclose(file);
    }
    fprintf(stderr, "finding written to %s\n", crash_path);
    signal(number, SIG_DFL);
    raise(number);
}

/* Sanitizers end by abort, so that on_signal sees it. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "abort_on_error=1";
}
const char *__ubsan_default_options(void);
const char *__ubsan_default_options(void)
{
    return "abort_on_error=1:print_stacktrace=1";
}

static void run_input(void)
{
    LLVMFuzzerTestOneInput(input, input_len);
    if (something_new())
        keep(input, input_len);
}

static void fuzz(unsigned long long runs, double seconds)
{
    unsigned long long count = 0;
    struct timespec start, now;
    double passed = 0;
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (size_t i = 0, given = corpus_count; i < given; i++, count++) {
        memcpy(input, corpus[i].data, input_len = corpus[i].len);
        LLVMFuzzerTestOneInput(input, input_len);
        something_new();
    }
    keep((const uint8_t *)"\0\7\0\0SEND\n\n\0", 11);
    for (; count < runs && passed < seconds; count++) {
        mutate();
        run_input();
        if (count % 256 == 0) {
            clock_gettime(CLOCK_MONOTONIC, &now);
            passed = (double)(now.tv_sec - start.tv_sec) + 1e-9 * (double)(now.tv_nsec - start.tv_nsec);
        }
    }
    printf("%llu inputs in %.0f s, %.0f a second, coverage %u, corpus %zu, 0 findings\n", count, passed,
           (double)count / (passed > 0 ? passed : 1), places_seen(), corpus_count);
}

int main(int argc, char **argv)
{
    unsigned long long runs = ~0ull, seed = 1;
    double seconds = 60;
    int files = 0;
    for (int i = 1; i < argc; i++) {
        struct stat about;
        if (!strncmp(argv[i], "-dict=", 6))
            read_words(argv[i] + 6);
        else if (!strncmp(argv[i], "-artifact_prefix=", 17))
            snprintf(crash_path, sizeof crash_path, "%scrash", argv[i] + 17);
        else if (sscanf(argv[i], "-runs=%llu", &runs) + sscanf(argv[i], "-max_total_time=%lf", &seconds)
                     + sscanf(argv[i], "-seed=%llu", &seed) == -3
                 || *argv[i] != '-')
            files += !stat(argv[i], &about) && S_ISREG(about.st_mode);
    }
    random_state = seed * 0x9e3779b97f4a7c15u + 1;
    signal(SIGABRT, on_signal);
    for (int i = 1; i < argc; i++) {
        if (*argv[i] == '-')
            continue;
        if (!files) {
            read_folder(argv[i]);
            continue;
        }
        input_len = read_file(argv[i], input, sizeof input);
        LLVMFuzzerTestOneInput(input, input_len);
        printf("%s: the invariants hold\n", argv[i]);
    }
    if (!files)
        fuzz(runs, seconds);
    return 0;
}
