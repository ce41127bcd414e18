//! Sets of completion indexes, as status writes them: `1,3-5`.

use std::collections::BTreeSet;

/// Reads the text; what is out of range is left out.
pub(super) fn parse(text: &str, completions: u32) -> BTreeSet<u32> {
    let mut out = BTreeSet::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>()) else {
            continue;
        };
        out.extend(first..=last.min(completions.saturating_sub(1)));
    }
    out.retain(|index| *index < completions);
    out
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
}
