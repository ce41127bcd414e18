//! Finding a field by name: a small open-addressing table per struct, all in one array of slots.
//!
//! Every read of a member by name comes through here, so a slot carries what nearly every name is made of: its two ends.
//! The text of a name is looked at only where it is longer than those.

/// Range of a struct's slots; a power of two of them, or none when the struct has no fields.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct NameIndex {
    start: u32,
    slots: u32,
}

/// A field by its name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slot {
    ends: Ends,
    /// The field's position in its struct.
    position: u32,
}

/// The length, the first eight bytes and the last eight; of names below eight bytes four and four, or all three.
/// Names of up to [`Ends::WHOLE`] bytes are the same when these are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Ends {
    head: u64,
    tail: u64,
    len: u32,
}

const EMPTY: Slot = Slot {
    ends: Ends {
        head: 0,
        tail: 0,
        len: 0,
    },
    position: u32::MAX,
};

impl NameIndex {
    /// Appends the slots for `names` and says where they are.
    pub(crate) fn build<'a>(slots: &mut Vec<Slot>, names: impl ExactSizeIterator<Item = &'a str>) -> Self {
        if names.len() == 0 {
            return Self::default();
        }
        // Half of the slots or more stay empty: most names that are looked up are found missing at the first of them.
        let size = (names.len() * 2).next_power_of_two();
        let start = slots.len();
        slots.resize(start + size, EMPTY);
        let table = &mut slots[start..];
        for (position, name) in (0u32..).zip(names) {
            let ends = Ends::of(name.as_bytes());
            let mut at = ends.hash() & (size - 1);
            while table[at].position != EMPTY.position {
                at = (at + 1) & (size - 1);
            }
            table[at] = Slot { ends, position };
        }
        Self {
            start: u32::try_from(start).unwrap_or(0),
            slots: u32::try_from(size).unwrap_or(0),
        }
    }

    /// The position of a name. `is` compares the whole of a long one with the name at a position.
    #[inline]
    pub(crate) fn find(
        self,
        slots: &[Slot],
        name: &[u8],
        mut is: impl FnMut(usize) -> bool,
    ) -> Option<usize> {
        let table = slots.get(self.start as usize..self.start as usize + self.slots as usize)?;
        let mask = table.len().checked_sub(1)?;
        let ends = Ends::of(name);
        let mut at = ends.hash() & mask;
        loop {
            let slot = &table[at];
            if slot.position == EMPTY.position {
                return None;
            }
            let position = slot.position as usize;
            if slot.ends == ends && (name.len() <= Ends::WHOLE || is(position)) {
                return Some(position);
            }
            at = (at + 1) & mask;
        }
    }
}

impl Ends {
    /// Up to here the ends are all of a name.
    const WHOLE: usize = 16;

    #[inline]
    fn of(name: &[u8]) -> Self {
        let (head, tail) = match (name.first_chunk::<8>(), name.last_chunk::<8>()) {
            (Some(head), Some(tail)) => (u64::from_le_bytes(*head), u64::from_le_bytes(*tail)),
            _ => short(name),
        };
        // No name is longer than four gigabytes; such a one would be compared whole.
        let len = u32::try_from(name.len()).unwrap_or(u32::MAX);
        Self { head, tail, len }
    }

    #[inline]
    fn hash(self) -> usize {
        let mixed =
            (self.head ^ self.tail.rotate_left(29) ^ u64::from(self.len)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // The upper half of a product depends on all of its factors.
        usize::try_from(mixed >> 32).unwrap_or(0)
    }
}

#[inline]
fn short(name: &[u8]) -> (u64, u64) {
    match (name.first_chunk::<4>(), name.last_chunk::<4>()) {
        (Some(head), Some(tail)) => (
            u64::from(u32::from_le_bytes(*head)),
            u64::from(u32::from_le_bytes(*tail)),
        ),
        _ => {
            let byte = |at: usize| name.get(at).copied().map_or(0, u64::from);
            (byte(0) | byte(1) << 8, byte(2))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::NameIndex;

    #[test]
    fn table_index_finds_every_name_and_no_other() {
        let names = [
            "a",
            "ab",
            "abc",
            "name",
            "ports",
            "image",
            "hostPID",
            "hostIPC",
            "restartPolicy",
            "requiredDuringSchedulingIgnoredDuringExecution",
            "preferredDuringSchedulingIgnoredDuringExecution",
        ];
        let mut slots = vec![super::EMPTY; 3];
        let index = NameIndex::build(&mut slots, names.iter().copied());
        let find = |name: &str| index.find(&slots, name.as_bytes(), |at| names[at] == name);
        for (at, name) in names.iter().enumerate() {
            assert_eq!(find(name), Some(at), "{name}");
        }
        for name in [
            "",
            "b",
            "ba",
            "nam",
            "portss",
            "requiredDuringSchedulingIgnoredXuringExecution",
        ] {
            assert_eq!(find(name), None, "{name}");
        }
        assert_eq!(NameIndex::default().find(&slots, b"a", |_| true), None);
    }
}
