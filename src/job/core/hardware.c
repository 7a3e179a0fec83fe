/* hardware.c - what a process says when its device or its machine is broken
 *
 * Only what blames the hardware alone: an illegal access, a failed launch or a lost peer of
 * NCCL may be the program's own fault, or come from another machine.
 */
#include "job/core/spec.h"

#include <string.h>

static const char *const signs[] = {
    /* memory of devices */
    "uncorrectable ECC",
    "ECC uncorrectable",
    "cudaErrorECCUncorrectable",
    "CUDA_ERROR_ECC_UNCORRECTABLE",
    "HBM MultiBit ECC",
    "hbm multi bit ecc",
    "device memory ECC error",
    /* links between devices */
    "uncorrectable NVLink",
    "cudaErrorNvlinkUncorrectable",
    "CUDA_ERROR_NVLINK_UNCORRECTABLE",
    /* the device is gone, or its driver is */
    "NVRM: Xid",
    "GPU has fallen off the bus",
    "GPU is lost",
    "Unable to determine the device handle for GPU",
    "infoROM is corrupted",
    "CUDA-capable device(s) is/are busy or unavailable",
    "cudaErrorDevicesUnavailable",
    "cudaErrorHardwareStackError",
    "CUDA_ERROR_HARDWARE_STACK_ERROR",
    "CUDA driver initialization failed",
    "cudaErrorSystemNotReady",
    "CUDA_ERROR_SYSTEM_NOT_READY",
    "Driver/library version mismatch",
    "HSA_STATUS_ERROR_EXCEPTION: An HSAIL operation resulted in a hardware exception",
    /* network cards, as NCCL says it */
    "Got async event : device fatal",
    "Got async event : local catastrophic error",
    "Got async event : port error",
    /* the machine */
    "[Hardware Error]",
    "Machine check events logged",
};

const char *ms_job_find_hardware(const char *text)
{
    const char *first = NULL, *first_at = NULL;

    for (size_t i = 0; text && i < sizeof signs / sizeof signs[0]; i++) {
        const char *at = strcasestr(text, signs[i]);

        if (at && (!first_at || at < first_at)) {
            first_at = at;
            first = signs[i];
        }
    }
    return first;
}
