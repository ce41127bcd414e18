//! Finding a field by name: a small open-addressing table per struct, all in one array of slots.

/// Where a struct's slots are; `mask + 1` of them, or none when the struct has no fields.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct NameIndex {
    start: u32,
    slots: u32,
}

const EMPTY: u16 = u16::MAX;

impl NameIndex {
    /// Appends the slots for `names` and says where they are.
    pub(crate) fn build<'a>(slots: &mut Vec<u16>, names: impl ExactSizeIterator<Item = &'a str>) -> Self {
        if names.len() == 0 {
            return Self::default();
        }
        let size = (names.len() * 2).next_power_of_two();
        let start = slots.len();
        slots.resize(start + size, EMPTY);
        let table = &mut slots[start..];
        for (position, name) in names.enumerate() {
            let mut at = hash(name.as_bytes()) & (size - 1);
            while table[at] != EMPTY {
                at = (at + 1) & (size - 1);
            }
            table[at] = u16::try_from(position).unwrap_or(EMPTY);
        }
        Self {
            start: u32::try_from(start).unwrap_or(0),
            slots: u32::try_from(size).unwrap_or(0),
        }
    }

    #[inline]
    pub(crate) fn find(self, slots: &[u16], name: &[u8], mut is: impl FnMut(usize) -> bool) -> Option<usize> {
        if self.slots == 0 {
            return None;
        }
        let mask = self.slots as usize - 1;
        let table = &slots[self.start as usize..self.start as usize + self.slots as usize];
        let mut at = hash(name) & mask;
        loop {
            let slot = table[at];
            if slot == EMPTY {
                return None;
            }
            if is(slot as usize) {
                return Some(slot as usize);
            }
            at = (at + 1) & mask;
        }
    }
}

/// Length, ends and middle tell Kubernetes' field names apart well enough.
#[inline]
fn hash(name: &[u8]) -> usize {
    let Some((&last, _)) = name.split_last() else {
        return 0;
    };
    let (first, middle) = (name[0] as usize, name[name.len() / 2] as usize);
    let quarter = name[name.len() / 4] as usize;
    let mixed = name.len().wrapping_mul(31) ^ first.wrapping_mul(131) ^ middle.wrapping_mul(517);
    let mixed = mixed ^ (last as usize).wrapping_mul(1031) ^ quarter.wrapping_mul(2053);
    mixed ^ (mixed >> 7)
}
