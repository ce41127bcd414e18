//! Files that containerd or a container's program writes on the machine.

use crate::Machine;
use crate::program::Program;
use node_cri::v1;
use std::path::Path;
use tonic::Status;

/// Opens a log with the folders above it, as containerd does.
pub(super) fn open_log(path: &str) -> Result<(), Status> {
    if path.is_empty() {
        return Ok(());
    }
    let made = std::fs::create_dir_all(Path::new(path).parent().unwrap_or(Path::new("/")));
    let opened = made.and_then(|()| std::fs::File::options().create(true).append(true).open(path));
    opened.map(drop).map_err(|error| {
        Status::unknown(format!(
            "failed to create containerd task: failed to start io pipe copy: failed to create log file: {error}"
        ))
    })
}

pub(super) fn print(log: &str, machine: &Machine, program: &Program) {
    if program.prints.is_empty() || log.is_empty() {
        return;
    }
    let line = format!("{} stdout F {}\n", machine.runtime.now(), program.prints);
    // A full disk loses lines, as containerd does.
    let _ = std::fs::File::options()
        .append(true)
        .open(log)
        .and_then(|mut file| std::io::Write::write_all(&mut file, line.as_bytes()));
}

pub(super) fn leave_words(mounts: &[v1::Mount], program: &Program) {
    let mount = mounts
        .iter()
        .find(|mount| mount.container_path == "/dev/termination-log");
    if let Some(mount) = mount.filter(|_| !program.last_words.is_empty()) {
        // Without the file there is nowhere to leave them.
        let _ = std::fs::write(&mount.host_path, &program.last_words);
    }
}

/// Into the volume that is mounted there.
pub(super) fn write_file(mounts: &[v1::Mount], program: &Program) {
    let Some((path, content)) = &program.writes else {
        return;
    };
    let inside = |mount: &v1::Mount| {
        let inside = Path::new(path).strip_prefix(&mount.container_path).ok()?;
        Some(Path::new(&mount.host_path).join(inside))
    };
    if let Some(file) = mounts.iter().find_map(inside) {
        // A full disk loses files.
        let _ = std::fs::write(file, content);
    }
}
