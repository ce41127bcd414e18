//! Answers of a case without the parts that earlier answers of it have already.
//!
//! A case creates an object, reads it, lists it and patches it: most of each answer stood in the one before. A part that
//! did is written as `{"=": pointer}`, where the pointer is RFC 6901's, into the list of the case's answers. The rest
//! in the file of an answer is what the step changed.

use std::collections::HashMap;

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};

/// The member that marks a part as repeated.
const MARK: &str = "=";
/// The shortest text of a part that is worth a pointer.
const SHORTEST: usize = 60;

/// Writes the answers of one case, one after the other.
#[derive(Debug, Default)]
pub(crate) struct Shortener {
    /// Pointers by the text of the part.
    known: HashMap<String, String>,
    count: usize,
}

impl Shortener {
    /// The answer with pointers for what earlier ones had.
    pub(crate) fn shorten(&mut self, answer: &Value) -> Value {
        let short = self.shortened(answer);
        self.learn(&format!("/{}", self.count), answer);
        self.count += 1;
        short
    }

    fn shortened(&self, value: &Value) -> Value {
        if let Some(pointer) = self.known.get(&value.to_string()) {
            return json!({ MARK: pointer });
        }
        match value {
            Value::Object(members) => members
                .iter()
                .map(|(name, member)| (name.clone(), self.shortened(member)))
                .collect::<Map<_, _>>()
                .into(),
            Value::Array(items) => items.iter().map(|item| self.shortened(item)).collect(),
            other => other.clone(),
        }
    }

    fn learn(&mut self, pointer: &str, value: &Value) {
        let text = value.to_string();
        if text.len() < SHORTEST.max(pointer.len() + 10) {
            return;
        }
        self.known.entry(text).or_insert_with(|| pointer.to_owned());
        match value {
            Value::Object(members) => {
                for (name, member) in members {
                    let name = name.replace('~', "~0").replace('/', "~1");
                    self.learn(&format!("{pointer}/{name}"), member);
                }
            }
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.learn(&format!("{pointer}/{index}"), item);
                }
            }
            _ => {}
        }
    }
}

/// Reads what a [`Shortener`] wrote, one answer after the other.
#[derive(Debug, Default)]
pub(crate) struct Restorer {
    answers: Vec<Value>,
}

impl Restorer {
    /// The answer with all its parts.
    ///
    /// # Errors
    /// A pointer to what no earlier answer has.
    pub(crate) fn restore(&mut self, short: &Value) -> Result<&Value> {
        let answer = self.restored(short)?;
        self.answers.push(answer);
        self.answers.last().context("an answer was pushed")
    }

    fn restored(&self, value: &Value) -> Result<Value> {
        Ok(match value {
            Value::Object(members) => {
                if let Some(pointer) = members.get(MARK) {
                    return self.part(pointer);
                }
                let restored = |(name, member): (&String, &Value)| Ok((name.clone(), self.restored(member)?));
                members
                    .iter()
                    .map(restored)
                    .collect::<Result<Map<_, _>>>()?
                    .into()
            }
            Value::Array(items) => items
                .iter()
                .map(|item| self.restored(item))
                .collect::<Result<Vec<_>>>()?
                .into(),
            other => other.clone(),
        })
    }

    fn part(&self, pointer: &Value) -> Result<Value> {
        let text = pointer.as_str().unwrap_or_default();
        let (answer, rest) = match text.strip_prefix('/').map(|text| text.split_once('/')) {
            Some(Some((answer, rest))) => (answer, format!("/{rest}")),
            Some(None) => (&text[1..], String::new()),
            None => bail!("{pointer} is no pointer"),
        };
        let found = answer
            .parse()
            .ok()
            .and_then(|answer: usize| self.answers.get(answer));
        found
            .and_then(|answer| answer.pointer(&rest))
            .cloned()
            .with_context(|| format!("nothing earlier stands at {pointer}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_are_pointers_and_come_back() {
        let long = "x".repeat(SHORTEST);
        let answers = [
            json!({"body": {"a/b": {"c~d": [long, 1]}, "e": "f"}}),
            json!({"body": {"items": [{"a/b": {"c~d": [long, 1]}, "e": "g"}]}}),
            json!({"body": {"a/b": {"c~d": [long, 1]}, "e": "f"}}),
        ];
        let mut shortener = Shortener::default();
        let short: Vec<Value> = answers.iter().map(|answer| shortener.shorten(answer)).collect();
        assert_eq!(short[0], answers[0]);
        assert_eq!(
            short[1],
            json!({"body": {"items": [{"a/b": {"=": "/0/body/a~1b"}, "e": "g"}]}})
        );
        assert_eq!(short[2], json!({"=": "/0"}));
        let mut restorer = Restorer::default();
        for (short, answer) in short.iter().zip(&answers) {
            assert_eq!(restorer.restore(short).unwrap(), answer);
        }
    }

    #[test]
    fn repeats_of_nothing_are_refused() {
        for pointer in ["/0", "/0/body", "0", ""] {
            let problem = Restorer::default()
                .restore(&json!({ MARK: pointer }))
                .unwrap_err();
            assert!(format!("{problem}").contains("pointer") || format!("{problem}").contains("earlier"));
        }
    }
}
