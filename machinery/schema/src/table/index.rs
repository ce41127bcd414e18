//! Finding a field by name: a small open-addressing table per struct, all in one array of slots.
//!
//! Every read of a member by name comes through here, so a slot carries half of its name's hash beside the position: a
//! name is compared only where it is almost certainly the right one.

/// Where a struct's slots are; a power of two of them, or none when the struct has no fields.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct NameIndex {
    start: u32,
    slots: u32,
}

/// A position in the lower half, the upper half of the name's hash above it.
pub(crate) type Slot = u32;

const EMPTY: Slot = Slot::MAX;
const POSITION: u32 = 0xffff;

impl NameIndex {
    /// Appends the slots for `names` and says where they are.
    pub(crate) fn build<'a>(slots: &mut Vec<Slot>, names: impl ExactSizeIterator<Item = &'a str>) -> Self {
        if names.len() == 0 {
            return Self::default();
        }
        let size = (names.len() * 2).next_power_of_two();
        let start = slots.len();
        slots.resize(start + size, EMPTY);
        let table = &mut slots[start..];
        for (position, name) in names.enumerate() {
            let hash = hash(name.as_bytes());
            let mut at = hash as usize & (size - 1);
            while table[at] != EMPTY {
                at = (at + 1) & (size - 1);
            }
            // Positions are below half of what fits, so no slot looks empty.
            table[at] = hash & !POSITION | u32::try_from(position).unwrap_or(0) & POSITION;
        }
        Self {
            start: u32::try_from(start).unwrap_or(0),
            slots: u32::try_from(size).unwrap_or(0),
        }
    }

    /// The position for which `is` holds, among those whose names hash as this one does.
    #[inline]
    pub(crate) fn find(
        self,
        slots: &[Slot],
        name: &[u8],
        mut is: impl FnMut(usize) -> bool,
    ) -> Option<usize> {
        let table = slots.get(self.start as usize..self.start as usize + self.slots as usize)?;
        let mask = table.len().checked_sub(1)?;
        let hash = hash(name);
        let mut at = hash as usize & mask;
        loop {
            let slot = table[at];
            if slot == EMPTY {
                return None;
            }
            let position = (slot & POSITION) as usize;
            if (slot ^ hash) & !POSITION == 0 && is(position) {
                return Some(position);
            }
            at = (at + 1) & mask;
        }
    }
}

/// Of the length, the first eight bytes and the last eight: all of most names.
#[inline]
fn hash(name: &[u8]) -> u32 {
    let (head, tail) = match (name.first_chunk::<8>(), name.last_chunk::<8>()) {
        (Some(head), Some(tail)) => (u64::from_le_bytes(*head), u64::from_le_bytes(*tail)),
        _ => short(name),
    };
    let mixed = (head ^ tail.rotate_left(29) ^ name.len() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let folded = mixed ^ (mixed >> 32);
    // The lower bits choose the slot, the upper half tells names apart: they must not be the same bits.
    let [slot, slots, ..] = (folded ^ (folded >> 48)).to_le_bytes();
    let [_, _, _, _, tag, tags, ..] = folded.to_le_bytes();
    u32::from_le_bytes([slot, slots, tag, tags])
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
    fn every_name_is_found_and_no_other() {
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
        let mut slots = vec![0; 3];
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
