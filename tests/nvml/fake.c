/*
 * A libnvidia-ml.so.1 for tests: the ABI of nvml.h (as nvidia-ml-py 13 calls it), its answers read from a text file.
 *
 * $FAKE_NVML names the file; it is read at every call, so a test changes the world by replacing it. Its lines are
 *     SCOPE.KEY NUMBER        SCOPE: a device's index, or * for all (the index wins)
 *     SCOPE.CALL.error CODE   that NVML call fails with this nvmlReturn_t
 *     SCOPE.CALL.block 1      that NVML call does not return while the line stands
 * Calls without a device are looked up under *.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7 };

typedef struct { int index; } *device_t;
static struct { int index; } devices[64];

static int lookup(const char *scope, const char *key, long long *value)
{
	const char *path = getenv("FAKE_NVML");
	FILE *file = path ? fopen(path, "r") : NULL;
	char wanted[128], name[128];
	long long number;
	int found = 0;

	if (!file)
		return 0;
	snprintf(wanted, sizeof wanted, "%s.%s", scope, key);
	while (!found && fscanf(file, "%127s %lld", name, &number) == 2)
		if (!strcmp(name, wanted)) {
			*value = number;
			found = 1;
		}
	fclose(file);
	return found;
}

static long long get(device_t device, const char *key, long long otherwise)
{
	char scope[16];
	long long value;

	if (device) {
		snprintf(scope, sizeof scope, "%d", device->index);
		if (lookup(scope, key, &value))
			return value;
	}
	return lookup("*", key, &value) ? value : otherwise;
}

/* What the file orders for a call: waits while it is to block, returns its error. */
static int enter(device_t device, const char *call)
{
	char key[112];

	snprintf(key, sizeof key, "%s.block", call);
	while (get(device, key, 0))
		usleep(10000);
	snprintf(key, sizeof key, "%s.error", call);
	return (int)get(device, key, SUCCESS);
}

#define ENTER(device) do { int code_ = enter(device, __func__); if (code_) return code_; } while (0)
/* A value that the device has only where the file gives it. */
#define NEED(value, device, key) do { (value) = get(device, key, -1); if ((value) < 0) return NOT_SUPPORTED; } while (0)

int nvmlInitWithFlags(unsigned flags) { (void)flags; ENTER(NULL); return SUCCESS; }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int code) { (void)code; return "fake"; }

int nvmlDeviceGetCount_v2(unsigned *count)
{
	ENTER(NULL);
	*count = (unsigned)get(NULL, "count", 1);
	return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, device_t *device)
{
	if (index >= 64)
		return INVALID_ARGUMENT;
	devices[index].index = (int)index;
	*device = (device_t)&devices[index];
	ENTER(*device);
	return SUCCESS;
}

int nvmlDeviceGetUUID(device_t device, char *uuid, unsigned length)
{
	ENTER(device);
	snprintf(uuid, length, "GPU-00000000-0000-0000-0000-%012d", device->index);
	return SUCCESS;
}

typedef struct {
	char bus_id_legacy[16];
	unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
	char bus_id[32];
} pci_t;

int nvmlDeviceGetPciInfo_v3(device_t device, pci_t *pci)
{
	ENTER(device);
	memset(pci, 0, sizeof *pci);
	snprintf(pci->bus_id, sizeof pci->bus_id, "%08X:%02X:00.0", 0, 0x16 + 0x11 * device->index);
	return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(device_t device, unsigned long long memory[3]) /* total, free, used */
{
	ENTER(device);
	memory[0] = (unsigned long long)get(device, "mem_total", 150754820096LL);
	memory[2] = (unsigned long long)get(device, "mem_used", 0);
	memory[1] = memory[0] - memory[2];
	return SUCCESS;
}

int nvmlDeviceGetUtilizationRates(device_t device, unsigned rates[2])
{
	long long value;
	ENTER(device);
	NEED(value, device, "util");
	rates[0] = (unsigned)value;
	rates[1] = 0;
	return SUCCESS;
}

#define SIMPLE(call, key) \
	int call(device_t device, unsigned *out) \
	{ \
		long long value; \
		ENTER(device); \
		NEED(value, device, key); \
		*out = (unsigned)value; \
		return SUCCESS; \
	}
SIMPLE(nvmlDeviceGetPowerUsage, "power_mw")
SIMPLE(nvmlDeviceGetEnforcedPowerLimit, "power_limit_mw")
SIMPLE(nvmlDeviceGetRetiredPagesPendingStatus, "pages_pending")

#define BY_KIND(call, key) \
	int call(device_t device, unsigned kind, unsigned *out) \
	{ \
		long long value; \
		(void)kind; \
		ENTER(device); \
		NEED(value, device, key); \
		*out = (unsigned)value; \
		return SUCCESS; \
	}
BY_KIND(nvmlDeviceGetTemperature, "temp")
BY_KIND(nvmlDeviceGetClockInfo, "sm_mhz")
BY_KIND(nvmlDeviceGetMaxClockInfo, "sm_max_mhz")

int nvmlDeviceGetCurrentClocksEventReasons(device_t device, unsigned long long *reasons)
{
	long long value;
	ENTER(device);
	NEED(value, device, "reasons");
	*reasons = (unsigned long long)value;
	return SUCCESS;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(device_t device, unsigned long long *reasons)
{
	long long value;
	ENTER(device);
	NEED(value, device, "reasons");
	*reasons = (unsigned long long)value;
	return SUCCESS;
}

int nvmlDeviceGetViolationStatus(device_t device, unsigned policy, unsigned long long times[2]) /* reference us, violation ns */
{
	long long value;
	ENTER(device);
	NEED(value, device, policy == 0 ? "violation_power_ns" : "violation_thermal_ns");
	times[0] = 0;
	times[1] = (unsigned long long)value;
	return SUCCESS;
}

int nvmlDeviceGetTotalEccErrors(device_t device, unsigned type, unsigned counter, unsigned long long *count)
{
	long long value;
	ENTER(device);
	if (type != 1 || counter != 0) /* only what is asked for: uncorrected, volatile */
		return INVALID_ARGUMENT;
	NEED(value, device, "ecc");
	*count = (unsigned long long)value;
	return SUCCESS;
}

int nvmlDeviceGetRemappedRows(device_t device, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed)
{
	long long value;
	ENTER(device);
	NEED(value, device, "rows_pending");
	*corrected = *uncorrected = *failed = 0;
	*pending = (unsigned)value;
	return SUCCESS;
}

int nvmlDeviceGetMigMode(device_t device, unsigned *current, unsigned *pending)
{
	long long value;
	ENTER(device);
	NEED(value, device, "mig");
	*current = *pending = (unsigned)value;
	return SUCCESS;
}

typedef struct { /* nvmlGpuFabricInfo_v2_t */
	unsigned version;
	unsigned char cluster[16];
	unsigned status, clique;
	unsigned char state;
	unsigned health;
} fabric_t;

int nvmlDeviceGetGpuFabricInfoV(device_t device, fabric_t *info)
{
	long long value;
	ENTER(device);
	if (info->version != (2u << 24 | sizeof *info))
		return INVALID_ARGUMENT;
	NEED(value, device, "fabric");
	info->state = (unsigned char)value;
	info->status = (unsigned)get(device, "fabric_status", SUCCESS);
	return SUCCESS;
}

int nvmlDeviceGetNvLinkState(device_t device, unsigned link, unsigned *active)
{
	ENTER(device);
	*active = (long long)link >= get(device, "links_down", 0);
	return SUCCESS;
}

typedef struct { /* nvmlFieldValue_t */
	unsigned field, scope;
	long long timestamp, latency;
	unsigned type, code;
	unsigned long long value;
} field_t;

int nvmlDeviceGetFieldValues(device_t device, int count, field_t *fields)
{
	ENTER(device);
	for (int i = 0; i < count; i++) {
		long long links = get(device, "links", -1);

		fields[i].code = fields[i].field == 91 && links >= 0 ? SUCCESS : NOT_SUPPORTED;
		fields[i].type = 1; /* unsigned int */
		fields[i].value = links > 0 ? (unsigned long long)links : 0;
	}
	return SUCCESS;
}

typedef struct {
	unsigned pid;
	unsigned long long memory;
	unsigned gpu_instance, compute_instance;
} process_t;

int nvmlDeviceGetComputeRunningProcesses_v3(device_t device, unsigned *count, process_t *processes)
{
	unsigned present, room = *count;
	char key[32];

	ENTER(device);
	present = (unsigned)get(device, "procs", 0);
	*count = present;
	if (present > room)
		return INSUFFICIENT_SIZE;
	for (unsigned i = 0; i < present; i++) {
		snprintf(key, sizeof key, "proc%u.pid", i);
		processes[i].pid = (unsigned)get(device, key, 0);
		snprintf(key, sizeof key, "proc%u.mem", i);
		processes[i].memory = (unsigned long long)get(device, key, -1); /* -1: NVML_VALUE_NOT_AVAILABLE */
		processes[i].gpu_instance = processes[i].compute_instance = 0xFFFFFFFFu;
	}
	return SUCCESS;
}
