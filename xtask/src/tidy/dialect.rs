//! Words of the dialect that older comments and names still have. They are counted ([`super::counts`]), so that each mended
//! line lowers the count and no new line raises it; [`super::words`] refuses those that are gone.

use super::words::{comment, is_product, name_with};
use super::{circles::plain, is_test};
use std::collections::BTreeMap;

/// Words in comments for which `docs/glossary.md` has others.
const WORDS: [&str; 17] = [
    "anew",
    "asked",
    "asking",
    "dear",
    "hear",
    "heard",
    "hears",
    "nobody",
    "promised",
    "promises",
    "resting",
    "rests",
    "said",
    "saying",
    "stranger",
    "strangers",
    "whoever",
];

/// The same of several words, in one line.
const PHRASES: [&str; 12] = [
    " gave up ",
    " give up ",
    " given up ",
    " gives up ",
    " let go ",
    " lets go ",
    " look at ",
    " looked at ",
    " looks at ",
    " takes in ",
    " what is there ",
    " what there is ",
];

/// Words in names: requests, queries and reviews are nouns, and what sends them has other verbs.
const NAMES: [&str; 5] = ["ask", "asked", "asking", "asks", "unasked"];

/// Comments with such a word; code in them is not read.
pub(super) fn comments(texts: &BTreeMap<String, String>) -> Vec<String> {
    let lists_them = |path: &str| path.ends_with("tidy/words.rs") || path.ends_with("tidy/dialect.rs");
    let sources = texts
        .iter()
        .filter(|(path, _)| path.ends_with(".rs") && !lists_them(path));
    let lines = sources.flat_map(|(path, text)| text.lines().enumerate().map(move |line| (path, line)));
    let found = lines.filter_map(|(path, (number, line))| {
        let word = old_word(comment(line)?)?;
        Some(format!("{path}:{}: a comment has {word:?}", number + 1))
    });
    found.collect()
}

/// Names of the product with such a word, by line.
pub(super) fn names(texts: &BTreeMap<String, String>) -> Vec<String> {
    let mut found = Vec::new();
    let sources = texts
        .iter()
        .filter(|(path, _)| is_product(path) && !is_test(path));
    for (path, text) in sources {
        for (number, line) in plain(text).lines().enumerate() {
            if let Some(name) = name_with(line, &NAMES) {
                found.push(format!("{path}:{}: the name {name:?}", number + 1));
            }
        }
    }
    found
}

fn old_word(comment: &str) -> Option<&'static str> {
    let outside: Vec<&str> = comment.split('`').step_by(2).collect();
    let text = outside.join(" ").to_lowercase();
    let words = text.split(|letter: char| !letter.is_ascii_alphabetic());
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    let own = WORDS.into_iter().find(|own| words.contains(own));
    own.or_else(|| {
        let line = format!(" {} ", words.join(" "));
        let phrase = PHRASES.into_iter().find(|own| line.contains(own));
        phrase.map(str::trim)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(code: &str) -> BTreeMap<String, String> {
        BTreeMap::from([("node/sys/src/x.rs".to_owned(), code.to_owned())])
    }

    #[test]
    fn old_words_of_comments_are_counted_by_line() {
        let code = "// The kernel is asked.\n/// Has `asked` and masked.\nlet url = \"http://asked\";\n//! It was\n//! given up, then looked at.\nf(); // It Rests.\n";
        let found = comments(&texts(code));
        let lines: Vec<&str> = found.iter().map(String::as_str).collect();
        let expected = [
            "node/sys/src/x.rs:1: a comment has \"asked\"",
            "node/sys/src/x.rs:5: a comment has \"given up\"",
            "node/sys/src/x.rs:6: a comment has \"rests\"",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn old_words_of_names_are_counted_in_the_product_alone() {
        let code = "let asked = 1;\nfn task() {}\nstruct Unasked;\n// asked\nprint(\"asked\");\n#[cfg(test)]\nmod tests {\n    let asked = 1;\n}\n";
        let found = names(&texts(code));
        let expected = [
            "node/sys/src/x.rs:1: the name \"asked\"",
            "node/sys/src/x.rs:3: the name \"Unasked\"",
        ];
        assert_eq!(found, expected);
        let of_tests = BTreeMap::from([("node/sys/tests/x.rs".to_owned(), code.to_owned())]);
        assert_eq!(names(&of_tests), [""; 0]);
    }
}
