//! A set of processors in the kernel's list format: `0-3,7`. Pure.

use std::collections::BTreeSet;
use std::fmt;

/// No machine has a processor, nor a NUMA node, with a higher number; a set that names one is refused.
pub(crate) const ID_MAX: u32 = 65_535;

/// Logical processors by number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CpuSet(BTreeSet<u32>);

impl CpuSet {
    /// Reads the kernel's list format; an empty text is the empty set.
    ///
    /// # Errors
    /// Upstream's sentence (`cpuset.Parse`), or a number above [`ID_MAX`].
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text.is_empty() {
            return Ok(Self::default());
        }
        let mut own = BTreeSet::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (number(first)?, number(last)?);
            if first > last {
                return Err(format!("invalid range {part:?} ({first} > {last})"));
            }
            own.extend(first..=last);
        }
        Ok(Self(own))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn contains(&self, id: u32) -> bool {
        self.0.contains(&id)
    }

    /// Numbers, lowest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> {
        self.0.iter().copied()
    }

    /// Numbers as other APIs have them.
    pub(crate) fn ids(&self) -> Vec<i64> {
        self.iter().map(i64::from).collect()
    }

    pub(crate) fn union(&self, other: &Self) -> Self {
        Self(self.0.union(&other.0).copied().collect())
    }

    pub(crate) fn intersection(&self, other: &Self) -> Self {
        Self(self.0.intersection(&other.0).copied().collect())
    }

    pub(crate) fn difference(&self, other: &Self) -> Self {
        Self(self.0.difference(&other.0).copied().collect())
    }
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<I: IntoIterator<Item = u32>>(ids: I) -> Self {
        Self(ids.into_iter().collect())
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ids = self.iter().peekable();
        let mut separator = "";
        while let Some(first) = ids.next() {
            let mut last = first;
            while let Some(next) = ids.next_if(|next| *next == last + 1) {
                last = next;
            }
            match last == first {
                true => write!(f, "{separator}{first}")?,
                false => write!(f, "{separator}{first}-{last}")?,
            }
            separator = ",";
        }
        Ok(())
    }
}

fn number(text: &str) -> Result<u32, String> {
    let id: u32 = text
        .parse()
        .map_err(|_| format!("strconv.Atoi: parsing {text:?}: invalid syntax"))?;
    match id {
        0..=ID_MAX => Ok(id),
        _ => Err(format!("processor {id} is above {ID_MAX}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upstream's `TestParse` and `TestString`.
    #[test]
    fn cpu_sets_are_read_and_written_in_the_kernels_format() {
        for (text, written) in [
            ("", "Ok()"),
            ("5", "Ok(5)"),
            ("1,2,3,4,5", "Ok(1-5)"),
            ("1-5", "Ok(1-5)"),
            ("1-2,3-5", "Ok(1-5)"),
            ("5,4,3,2,1", "Ok(1-5)"),
            ("3-6,1-5", "Ok(1-6)"),
            ("3-3,5-5", "Ok(3,5)"),
            ("0-3,7\n", "Ok(0-3,7)"),
        ] {
            let read = CpuSet::parse(text).unwrap();
            assert_eq!(format!("Ok({read})"), written, "{text:?}");
        }
        for wrong in [
            "a",
            "3-",
            "-3",
            "1--3",
            ",1",
            "3,1-",
            "5-1",
            "0-4294967295",
            "65536",
        ] {
            assert!(CpuSet::parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
