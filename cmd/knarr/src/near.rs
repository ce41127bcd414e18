//! Names that resemble a misspelt one, for refusals.

/// No longer word resembles a name.
const WORD_CHARS_MAX: usize = 64;

/// The name that a word resembles most, where it resembles any.
pub(crate) fn nearest<'a>(word: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let (steps, name) = names.map(|name| (distance(word, name), name)).min()?;
    let chars = word.chars().take(WORD_CHARS_MAX).count();
    (steps <= 1 + chars / 4).then_some(name)
}

/// The beginning of a word, to be quoted.
pub(crate) fn shown(word: &str) -> String {
    word.chars().take(WORD_CHARS_MAX).collect()
}

/// Number of letters to insert, delete or replace on the way from one word to the other, cases and underscores apart.
fn distance(word: &str, name: &str) -> usize {
    let plain = |letter: char| {
        if letter == '_' {
            '-'
        } else {
            letter.to_ascii_lowercase()
        }
    };
    let word: Vec<char> = word.chars().take(WORD_CHARS_MAX).map(plain).collect();
    let mut row: Vec<usize> = (0..=word.len()).collect();
    for (at, letter) in name.chars().map(plain).enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], at + 1);
        for (column, own) in word.iter().enumerate() {
            let replaced = diagonal + usize::from(*own != letter);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[word.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_found() {
        let names = ["job-controller", "cronjob-controller", "ttl-controller"];
        let near = |word: &str| nearest(word, names.into_iter());
        assert_eq!(near("jobcontroler"), Some("job-controller"));
        assert_eq!(near("CronJob_Controller"), Some("cronjob-controller"));
        assert_eq!(near("bananas"), None);
        assert_eq!(near(&"x".repeat(1 << 20)), None, "a long word costs little");
    }
}
