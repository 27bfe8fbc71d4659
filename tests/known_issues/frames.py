"""Frames of the kernel's log, as records: what a kernel writes about one warning or Oops."""

from __future__ import annotations

CUT = "------------[ cut here ]------------"
FIELD_SPANNING = (
    'memcpy: detected field-spanning write (size 8) of single field "current_pos" '
    "at drivers/hv/dxgkrnl/dxgvmbus.c:2389 (size 0)"
)
HEALTHY = (
    CUT,
    FIELD_SPANNING,
    "WARNING: CPU: 3 PID: 512 at drivers/hv/dxgkrnl/dxgvmbus.c:2389",
    "Modules linked in: intel_rapl_msr intel_rapl_common crc32c_intel battery",
    "CPU: 3 UID: 1000 PID: 512 Comm: Xwayland Not tainted 6.18.33.2-microsoft-standard-WSL2 #1",
    "RIP: 0010:dxgvmb_send_wait_sync_object_gpu+0x1e0/0x2b0",
    *(f"R{n:02}: 0000000000000000 R{n + 1:02}: ffff8881047c2c00" for n in range(8, 16)),
    "Call Trace:",
    " <TASK>",
    " dxgkio_wait_sync_object_gpu+0x2d3/0x4b0",
    " __x64_sys_ioctl+0x91/0xd0",
    " </TASK>",
    "---[ end trace 0000000000000000 ]---",
)
"""Kernel 6.18 writes it once on machines that work for months, and on those that hang."""

_FAILED = "misc dxg: dxgk: dxgkio_{}: Ioctl failed: -{}"
BOOT = (
    *(_FAILED.format("is_feature_enabled", 22),) * 3,
    *(_FAILED.format("query_adapter_info", 22),) * 12,
    *(_FAILED.format("query_adapter_info", 2),) * 5,
)
"""What WSL2 writes at each start, and some of it whenever a program looks for GPUs."""

HANDLE_TABLE = (
    "BUG: kernel NULL pointer dereference, address: 0000000000000008",
    "#PF: supervisor write access in kernel mode",
    "Oops: 0002 [#1] SMP PTI",
    "CPU: 1 PID: 812 Comm: python3 Not tainted 6.6.75.3-microsoft-standard-WSL2 #1",
    "RIP: 0010:hmgrtable_free_handle+0x7c/0x130",
    "Call Trace:",
    " dxgprocess_ht_remove_handle+0x31/0x50",
    "---[ end trace 0000000000000000 ]---",
)

UVM = (
    "BUG: unable to handle page fault for address: ffffb2c0c5a30000",
    "Oops: 0002 [#1] PREEMPT SMP NOPTI",
    "Modules linked in: nvidia_uvm(OE) nvidia(OE) snd_hda_codec",
    "RIP: 0010:uvm_perf_access_counters_init+0x5f/0x130 [nvidia_uvm]",
    "---[ end trace 0000000000000000 ]---",
)

LINUX = (
    "nvidia: loading out-of-tree module taints kernel.",
    "nvidia-nvlink: Nvlink Core is being initialized, major device number 236",
    "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  570.86.10  Tue Jan 21 20:41:28 UTC 2025",
    "nvidia-uvm: Loaded the UVM driver, major device number 234.",
)
"""What the driver of plain Linux writes when it is loaded."""
