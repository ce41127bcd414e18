//! Sets of completion indexes, as status writes them: `1,3-5`.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

/// Ranges of indexes in order, none of which touches the next. A short text names thousands of millions of indexes:
/// they are never written out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ranges(Vec<RangeInclusive<u32>>);

impl Ranges {
    /// Reads the text; what is out of range is left out.
    pub(super) fn parse(text: &str, completions: u32) -> Self {
        let part = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (first.parse::<u32>().ok()?, last.parse::<u32>().ok()?);
            let last = last.min(completions.checked_sub(1)?);
            (first <= last).then_some((first, last))
        };
        let mut all: Vec<(u32, u32)> = text.split(',').filter_map(part).collect();
        all.sort_unstable();
        let mut ranges: Vec<RangeInclusive<u32>> = Vec::with_capacity(all.len());
        for (first, last) in all {
            match ranges.last_mut() {
                Some(before) if first <= before.end().saturating_add(1) => {
                    *before = *before.start()..=last.max(*before.end());
                }
                _ => ranges.push(first..=last),
            }
        }
        Self(ranges)
    }

    /// Number of indexes.
    pub(super) fn len(&self) -> u64 {
        let of_range = |own: &RangeInclusive<u32>| u64::from(own.end() - own.start()) + 1;
        self.0.iter().map(of_range).sum()
    }

    /// Number of those that are in the set.
    pub(super) fn count_in(&self, set: &BTreeSet<u32>) -> usize {
        self.0.iter().map(|own| set.range(own.clone()).count()).sum()
    }
}

/// Reads a text that the controller has written, of indexes whose pods have ended; what is out of range is left out.
pub(super) fn parse(text: &str, completions: u32) -> BTreeSet<u32> {
    let ranges = Ranges::parse(text, completions);
    ranges.0.into_iter().flatten().collect()
}

/// Writes a set: runs of three and more as a range, two as two numbers, as upstream does.
pub(super) fn format(indexes: &BTreeSet<u32>) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for index in indexes {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == *index => *last = *index,
            _ => runs.push((*index, *index)),
        }
    }
    let text = runs.into_iter().map(|(first, last)| match last - first {
        0 => first.to_string(),
        1 => format!("{first},{last}"),
        _ => format!("{first}-{last}"),
    });
    text.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_read_and_write() {
        for text in ["", "0", "1,3-5", "0,1", "0-2,4,5,7-9"] {
            assert_eq!(format(&parse(text, 10)), text);
        }
        assert_eq!(format(&parse("3-20", 6)), "3-5");
    }

    #[test]
    fn ranges_of_all_indexes_are_counted_without_naming_them() {
        let all = Ranges::parse("0-2147483646", i32::MAX.cast_unsigned());
        assert_eq!(all.len(), 2_147_483_647);
        let done = BTreeSet::from([0, 7, 2_147_483_646]);
        assert_eq!(all.count_in(&done), 3);
        let some = Ranges::parse("5-7,1,2-3,6-20", 10);
        assert_eq!(some, Ranges(vec![1..=3, 5..=9]));
        assert_eq!((some.len(), some.count_in(&done)), (8, 1));
        assert_eq!(Ranges::parse("0,3-1", 0).len(), 0);
    }
}
