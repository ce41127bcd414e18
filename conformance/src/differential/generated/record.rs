//! Recorded answers to generated cases: `conformance/generated`, one file for each folder of cases.
//!
//! ```text
//! # Answers of kube-apiserver v1.37.1; written by `cargo xtask diff --record`.
//! group core/configmap/full:fields 0123456789abcdef
//! create data=bad<TAB>{"causes":[["FieldValueInvalid","data[-Bad Key]","Invalid value: …"]],"code":422}
//! ```
//!
//! One line is one case: the name of the probe and the compact answer. `varies` stands for an answer that did not come out
//! alike each time it was recorded, `no answer` for a connection that kube-apiserver closed; such cases are sent and not compared.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::Group;
use super::answer::{UNANSWERED, VARIES};
use super::run::Answers;

const HEAD: &str = "# Answers of kube-apiserver ";
const HEAD_END: &str = "; written by `cargo xtask diff --record`.";
/// Recorded answers by the id of the group.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Records {
    pub version: String,
    groups: BTreeMap<String, Recorded>,
}

#[derive(Debug, PartialEq)]
struct Recorded {
    fingerprint: String,
    answers: Answers,
}

impl Records {
    pub(crate) fn new(version: &str) -> Self {
        Self {
            version: version.to_owned(),
            groups: BTreeMap::new(),
        }
    }

    /// Reads all files of a folder; a folder that is not there has none.
    pub(crate) fn read(folder: &Path) -> Result<Self> {
        let mut records = Self::default();
        for path in super::super::recording::files(folder)? {
            let text = fs::read_to_string(&path)?;
            records
                .read_file(&text)
                .with_context(|| path.display().to_string())?;
        }
        Ok(records)
    }

    /// Answers to a group, as it stands now; nothing where none are recorded yet.
    ///
    /// # Errors
    /// Those to other requests are recorded.
    pub(crate) fn answers(&self, group: &Group) -> Result<Option<&Answers>> {
        let id = &group.case.id;
        let recorded = self.groups.get(id);
        match recorded {
            Some(recorded) if recorded.fingerprint == group.fingerprint()? => Ok(Some(&recorded.answers)),
            Some(_) => {
                bail!("{id} has changed since it was recorded; run `cargo xtask diff --record --only {id}`")
            }
            None => Ok(None),
        }
    }

    /// Keeps the answers to a group, in place of earlier ones.
    pub(crate) fn insert(&mut self, group: &Group, answers: Answers) -> Result<()> {
        let fingerprint = group.fingerprint()?;
        self.groups
            .insert(group.case.id.clone(), Recorded { fingerprint, answers });
        Ok(())
    }

    /// Forgets groups that `keep` refuses.
    pub(crate) fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.groups.retain(|id, _| keep(id));
    }

    /// Ids of the recorded groups.
    #[cfg(test)]
    pub(crate) fn ids(&self) -> impl Iterator<Item = &str> {
        self.groups.keys().map(String::as_str)
    }

    /// Writes one file for each area, and removes those of areas that have no group any more.
    pub(crate) fn write(&self, folder: &Path) -> Result<()> {
        let mut texts: BTreeMap<&str, String> = BTreeMap::new();
        for (id, recorded) in &self.groups {
            let area = id.split('/').next().unwrap_or(id);
            let text = texts
                .entry(area)
                .or_insert_with(|| format!("{HEAD}{}{HEAD_END}\n", self.version));
            writeln!(text, "group {id} {}", recorded.fingerprint)?;
            for (name, answer) in &recorded.answers.0 {
                writeln!(text, "{name}\t{answer}")?;
            }
        }
        fs::create_dir_all(folder)?;
        for path in super::super::recording::files(folder)? {
            fs::remove_file(path)?;
        }
        for (area, text) in texts {
            fs::write(folder.join(format!("{area}.txt")), text)?;
        }
        Ok(())
    }

    fn read_file(&mut self, text: &str) -> Result<()> {
        let mut lines = text.lines().peekable();
        let version = lines
            .next()
            .and_then(|head| head.strip_prefix(HEAD)?.strip_suffix(HEAD_END))
            .with_context(|| format!("the first line is not `{HEAD}VERSION{HEAD_END}`"))?;
        version.clone_into(&mut self.version);
        while let Some(line) = lines.next() {
            let (id, fingerprint) = line
                .strip_prefix("group ")
                .and_then(|rest| rest.rsplit_once(' '))
                .with_context(|| format!("{line:?} is not `group ID FINGERPRINT`"))?;
            let mut answers = Vec::new();
            while let Some((name, answer)) = lines
                .next_if(|line| !line.starts_with("group "))
                .map(|line| {
                    line.split_once('\t')
                        .with_context(|| format!("no tab in {line:?}"))
                })
                .transpose()?
            {
                answers.push((name.to_owned(), serde_json::from_str(answer)?));
            }
            let recorded = Recorded {
                fingerprint: fingerprint.to_owned(),
                answers: Answers(answers),
            };
            self.groups.insert(id.to_owned(), recorded);
        }
        Ok(())
    }
}

/// Reports whether a recorded answer is compared.
pub(crate) fn is_compared(answer: &Value) -> bool {
    answer != VARIES && answer != UNANSWERED
}
