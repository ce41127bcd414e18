//! Options of a bind mount, as `mount -o` has them.

/// Options that a copy of a mount has beside those of its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MountFlags {
    /// `MOUNT_ATTR_` bits to set (mount_setattr(2)).
    pub(crate) set: u64,
    /// Bits to clear before.
    pub(crate) clear: u64,
}

const READ_ONLY: u64 = 0x1;
const NO_SUID: u64 = 0x2;
const NO_DEVICES: u64 = 0x4;
const NO_EXEC: u64 = 0x8;
/// Upkeep of access times: one of three values, which the kernel changes only where all bits are cleared before.
const ACCESS_TIME: u64 = 0x70;
const NO_ACCESS_TIME: u64 = 0x10;
const STRICT_ACCESS_TIME: u64 = 0x20;
const NO_FOLDER_ACCESS_TIME: u64 = 0x80;

impl MountFlags {
    /// Flags of options, the later before the earlier. Options of file systems have no effect on a bind mount and are passed
    /// over, as mount(8) does.
    pub fn of<'a>(options: impl IntoIterator<Item = &'a str>) -> Self {
        options.into_iter().fold(Self::default(), Self::with)
    }

    fn with(self, option: &str) -> Self {
        let (set, clear) = match option {
            "ro" => (READ_ONLY, 0),
            "rw" => (0, READ_ONLY),
            "nosuid" => (NO_SUID, 0),
            "suid" => (0, NO_SUID),
            "nodev" => (NO_DEVICES, 0),
            "dev" => (0, NO_DEVICES),
            "noexec" => (NO_EXEC, 0),
            "exec" => (0, NO_EXEC),
            "noatime" => (NO_ACCESS_TIME, ACCESS_TIME),
            "relatime" => (0, ACCESS_TIME),
            "strictatime" => (STRICT_ACCESS_TIME, ACCESS_TIME),
            "nodiratime" => (NO_FOLDER_ACCESS_TIME, 0),
            "diratime" => (0, NO_FOLDER_ACCESS_TIME),
            _ => (0, 0),
        };
        Self {
            set: (self.set & !clear) | set,
            clear: (self.clear & !set) | clear,
        }
    }

    /// Reports whether nothing changes.
    pub(crate) fn is_empty(self) -> bool {
        self == Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(options: &[&str], set: u64, clear: u64) {
        let flags = MountFlags::of(options.iter().copied());
        assert_eq!(flags, MountFlags { set, clear }, "{options:?}");
    }

    #[test]
    fn mount_flags_are_those_of_the_options() {
        check(&[], 0, 0);
        check(&["ro", "nosuid", "noexec", "nodev"], 0xf, 0);
        check(&["noatime", "nodiratime"], 0x90, ACCESS_TIME);
        check(&["strictatime"], 0x20, ACCESS_TIME);
        check(&["ro", "rw"], 0, READ_ONLY);
        check(&["discard", "bind", "data=ordered"], 0, 0);
    }
}
