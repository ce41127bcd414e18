//! Families of the machine.

use std::fmt::Write as _;

use node_sys::machine::{Machine, Processors};

use super::text::{heading, labels};

/// Writes the machine's families; what cannot be read is left out.
pub(super) fn write(out: &mut String, machine: &Machine, processors: Processors) {
    let own = labels(&[
        ("boot_id", &machine.boot_id),
        ("machine_id", &machine.machine_id),
        ("system_uuid", &machine.system_uuid),
    ]);
    let counted = |count: u64| (count > 0).then_some(count);
    for (name, help, value) in [
        (
            "machine_cpu_cores",
            "Number of logical CPU cores.",
            counted(machine.cpus),
        ),
        (
            "machine_cpu_physical_cores",
            "Number of physical CPU cores.",
            counted(processors.cores),
        ),
        (
            "machine_cpu_sockets",
            "Number of CPU sockets.",
            counted(processors.sockets),
        ),
        (
            "machine_memory_bytes",
            "Amount of memory installed on the machine.",
            counted(machine.memory_bytes),
        ),
        (
            "machine_swap_bytes",
            "Amount of swap memory available on the machine.",
            Some(machine.swap_bytes),
        ),
    ] {
        if let Some(value) = value {
            heading(out, name, "gauge", help);
            let _ = writeln!(out, "{name}{own} {value}");
        }
    }
    scrape_error(out, "machine", false);
    version(out, machine);
}

/// Failure to read figures of `container` or `machine`.
pub(super) fn scrape_error(out: &mut String, of: &str, failed: bool) {
    let stop = if of == "machine" { "." } else { "" };
    let help = format!("1 if there was an error while getting {of} metrics, 0 otherwise{stop}");
    let name = format!("{of}_scrape_error");
    heading(out, &name, "gauge", &help);
    let _ = writeln!(out, "{name} {}", u8::from(failed));
}

/// There is no cAdvisor and no Docker here: only kernel and system have a version.
fn version(out: &mut String, machine: &Machine) {
    let own = labels(&[
        ("cadvisorRevision", ""),
        ("cadvisorVersion", ""),
        ("dockerVersion", ""),
        ("kernelVersion", &machine.kernel_version),
        ("osVersion", &machine.os_image),
    ]);
    heading(
        out,
        "cadvisor_version_info",
        "gauge",
        "A metric with a constant '1' value labeled by kernel version, OS version, docker version, cadvisor version & \
         cadvisor revision.",
    );
    let _ = writeln!(out, "cadvisor_version_info{own} 1");
}
