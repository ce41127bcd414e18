//! Records of the kernel's log (`/dev/kmsg`, Documentation/ABI/testing/dev-kmsg of Linux).

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use async_trait::async_trait;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

const DEVICE: &str = "/dev/kmsg";
/// The kernel's bound of a record (`CONSOLE_EXT_LOG_MAX`): one read returns one whole.
const RECORD_BYTES_MAX: usize = 8 << 10;
/// The facility of the kernel itself. Records that programs write have another: the kernel replaces this one.
const KERNEL_FACILITY: u64 = 0;

/// A record that the kernel itself wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelRecord {
    /// Number of the record since boot.
    pub sequence: u64,
    /// First line of its text.
    pub text: String,
}

/// A log of the kernel.
#[async_trait]
pub trait KernelLog: Send + Sync + std::fmt::Debug {
    /// Begins to read, from the oldest record that is kept.
    fn open(&self) -> std::io::Result<Box<dyn KernelLogReader>>;
    /// Identity of the boot that the records belong to.
    fn boot_id(&self) -> String;
}

/// A place in the log.
#[async_trait]
pub trait KernelLogReader: Send + std::fmt::Debug {
    /// The next record of the kernel, once there is one; `None` for a record of a program. Records that were overwritten before they were
    /// read are left out.
    async fn next(&mut self) -> std::io::Result<Option<KernelRecord>>;
}

/// This machine's own.
#[derive(Debug, Clone, Copy, Default)]
pub struct LinuxKernelLog;

#[async_trait]
impl KernelLog for LinuxKernelLog {
    fn open(&self) -> std::io::Result<Box<dyn KernelLogReader>> {
        let file = std::fs::OpenOptions::new()
            .read(true)
            .custom_flags(nix::fcntl::OFlag::O_NONBLOCK.bits())
            .open(Path::new(DEVICE))?;
        // SAFETY: the file belongs to the handle, which is dropped with it.
        #[expect(unsafe_code, reason = "the descriptor is open as long as it is registered")]
        let reader = unsafe { AsyncFd::register_with_interest(file, Interest::READABLE) }?;
        Ok(Box::new(DeviceReader(reader)))
    }

    fn boot_id(&self) -> String {
        let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
        id.unwrap_or_default().trim().to_owned()
    }
}

#[derive(Debug)]
struct DeviceReader(AsyncFd<File>);

#[async_trait]
impl KernelLogReader for DeviceReader {
    async fn next(&mut self) -> std::io::Result<Option<KernelRecord>> {
        let mut buffer = [0; RECORD_BYTES_MAX];
        loop {
            let mut ready = self.0.readable().await?;
            let read = ready.try_io(|file| file.get_ref().read(&mut buffer));
            match read {
                Ok(Ok(0)) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(Ok(length)) => return Ok(parse(&buffer[..length])),
                // Records were overwritten; the next read goes on with the oldest that is left.
                Ok(Err(error)) if error.kind() == ErrorKind::BrokenPipe => {}
                Ok(Err(error)) => return Err(error),
                Err(_would_block) => {}
            }
        }
    }
}

/// Reads `6,339,5140900,-;text`, with further fields before the semicolon and lines of properties after the first.
fn parse(record: &[u8]) -> Option<KernelRecord> {
    let record = String::from_utf8_lossy(record);
    let (prefix, text) = record.split_once(';')?;
    let mut fields = prefix.split(',');
    let priority: u64 = fields.next()?.parse().ok()?;
    let sequence = fields.next()?.parse().ok()?;
    (priority >> 3 == KERNEL_FACILITY).then(|| KernelRecord {
        sequence,
        text: text.lines().next().unwrap_or_default().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_record_is_read_and_one_of_a_program_is_none() {
        let record = |sequence, text: &str| {
            Some(KernelRecord {
                sequence,
                text: text.to_owned(),
            })
        };
        for (text, expected) in [
            (
                "4,339,5140900,-;oom-kill:a; b\n SUBSYSTEM=x\n",
                record(339, "oom-kill:a; b"),
            ),
            ("6,7,8,c,caller=T1;words\n", record(7, "words")),
            // LOG_USER, which a program that asks for the kernel's facility gets.
            ("12,340,5140901,-;a invoked oom-killer: b\n", None),
            ("x,340,5140901,-;words\n", None),
            ("4,340", None),
            ("", None),
        ] {
            assert_eq!(parse(text.as_bytes()), expected, "{text}");
        }
    }

    #[tokio::test]
    #[ignore = "needs root"]
    async fn kernel_log_of_this_machine_has_records_of_the_kernel() {
        let mut reader = LinuxKernelLog.open().unwrap();
        let mut found = None;
        while found.is_none() {
            found = reader.next().await.unwrap();
        }
        assert!(!LinuxKernelLog.boot_id().is_empty());
    }
}
