/* Makes a disk slow, in a program that is started with this in LD_PRELOAD: each fdatasync waits for as many
 * milliseconds as the file says that SLOW_SYNC_FILE names. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int fdatasync(int fd)
{
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    const char *path = getenv("SLOW_SYNC_FILE");
    FILE *file = path ? fopen(path, "r") : NULL;
    int milliseconds = 0;
    if (file) {
        if (fscanf(file, "%d", &milliseconds) != 1)
            milliseconds = 0;
        fclose(file);
    }
    if (milliseconds > 0)
        usleep(milliseconds * 1000u);
    return real(fd);
}
