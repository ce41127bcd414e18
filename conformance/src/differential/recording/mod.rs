//! Answers of the real kube-apiserver as data: `conformance/recordings`, one file for each folder of cases.
//!
//! ```text
//! # Answers of kube-apiserver v1.37.1; written by `cargo xtask diff --record`.
//! case core/configmap/full:create 0123456789abcdef
//! 1 201 POST {collection}
//!  {"body": {…}, "headers": […]}
//! ```
//!
//! A line that begins with a blank goes on with the JSON of the answer above it. Answers are masked before they come here,
//! and hold no more of each other than [`super::repeats`] leaves.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::case::{Case, Step};
use super::compare::Seen;
use super::repeats::{Restorer, Shortener};
use super::run::{StepAnswer, Transcript};

/// The widest line that is not broken at members.
const WIDTH: usize = 150;
/// The first line of each file is this, the version, and [`HEAD_END`].
const HEAD: &str = "# Answers of kube-apiserver ";
const HEAD_END: &str = "; written by `cargo xtask diff --record`.";

/// Recorded answers to cases.
#[derive(Debug, Default, PartialEq)]
pub struct Recordings {
    /// The version of kube-apiserver that answered, as `/version` has it.
    pub version: String,
    /// By the id of the case.
    cases: BTreeMap<String, Recorded>,
}

#[derive(Debug, PartialEq)]
struct Recorded {
    fingerprint: String,
    transcript: Transcript,
}

impl Recordings {
    /// Nothing recorded yet.
    #[must_use]
    pub fn new(version: &str) -> Self {
        Self {
            version: version.to_owned(),
            cases: BTreeMap::new(),
        }
    }

    /// Reads all files of a folder; a folder that is not there has none.
    pub fn read(folder: &Path) -> Result<Self> {
        let mut recordings = Self::default();
        for path in files(folder)? {
            let text = fs::read_to_string(&path)?;
            recordings
                .read_file(&text)
                .with_context(|| path.display().to_string())?;
        }
        Ok(recordings)
    }

    /// The answers to a case, as it stands now.
    ///
    /// # Errors
    /// None are recorded, or those to other requests.
    pub fn answers(&self, case: &Case) -> Result<&Transcript> {
        let recorded = self.cases.get(&case.id);
        let recorded = recorded.with_context(|| {
            format!(
                "no answers of kube-apiserver are recorded; run `cargo xtask diff --record --only {}`",
                case.id
            )
        })?;
        if recorded.fingerprint != case.fingerprint()? {
            bail!(
                "the case has changed since the answers of kube-apiserver were recorded; run `cargo xtask diff --record --only {}`",
                case.id
            );
        }
        Ok(&recorded.transcript)
    }

    /// Keeps the answers to a case, in place of earlier ones.
    pub fn insert(&mut self, case: &Case, transcript: Transcript) -> Result<()> {
        let requests = case.steps.iter().map(Step::line).collect::<Vec<_>>();
        let mut transcript = transcript;
        for answer in &mut transcript.0 {
            // As the case has it: the filled request says the same with a namespace in it.
            let request = requests.get(answer.step - 1).context("a step of the case")?;
            request.clone_into(&mut answer.request);
        }
        let recorded = Recorded {
            fingerprint: case.fingerprint()?,
            transcript,
        };
        self.cases.insert(case.id.clone(), recorded);
        Ok(())
    }

    /// Forgets cases that `keep` refuses.
    pub fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.cases.retain(|id, _| keep(id));
    }

    /// Ids of the cases that have answers.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.cases.keys().map(String::as_str)
    }

    /// Writes one file for each area, and removes those of areas that have no case any more.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let mut texts: BTreeMap<PathBuf, String> = BTreeMap::new();
        for (id, recorded) in &self.cases {
            let text = texts
                .entry(folder.join(format!("{}.txt", area(id))))
                .or_insert_with(|| format!("{HEAD}{}{HEAD_END}\n", self.version));
            write_case(text, id, recorded)?;
        }
        let mut written = Self::new(&self.version);
        for (path, text) in &texts {
            written
                .read_file(text)
                .with_context(|| path.display().to_string())?;
        }
        if written != *self {
            bail!("recordings do not read back as they were written");
        }
        fs::create_dir_all(folder)?;
        for path in files(folder)? {
            if !texts.contains_key(&path) {
                fs::remove_file(path)?;
            }
        }
        for (path, text) in &texts {
            fs::write(path, text)?;
        }
        Ok(())
    }

    fn read_file(&mut self, text: &str) -> Result<()> {
        let mut lines = text.lines().peekable();
        let head = lines.next().unwrap_or_default();
        let version = head
            .strip_prefix(HEAD)
            .and_then(|rest| rest.strip_suffix(HEAD_END))
            .with_context(|| format!("the first line is not `{HEAD}VERSION{HEAD_END}`"))?;
        version.clone_into(&mut self.version);
        while let Some(line) = lines.next() {
            let (id, fingerprint) = line
                .strip_prefix("case ")
                .and_then(|rest| rest.rsplit_once(' '))
                .with_context(|| format!("{line:?} is not `case ID FINGERPRINT`"))?;
            let mut restorer = Restorer::default();
            let mut answers = Vec::new();
            while let Some(head) = lines.next_if(|line| !line.starts_with("case ")) {
                let mut body = String::new();
                while let Some(more) = lines.next_if(|line| line.starts_with(' ')) {
                    body.push_str(more);
                }
                let answer = read_answer(head, &body, &mut restorer);
                answers.push(answer.with_context(|| format!("{id}, {head:?}"))?);
            }
            let recorded = Recorded {
                fingerprint: fingerprint.to_owned(),
                transcript: Transcript(answers),
            };
            self.cases.insert(id.to_owned(), recorded);
        }
        Ok(())
    }
}

/// The folder of cases, which names the file.
fn area(id: &str) -> &str {
    id.split('/').next().unwrap_or(id)
}

pub(crate) fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    if folder.try_exists()? {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "txt") {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

fn write_case(text: &mut String, id: &str, recorded: &Recorded) -> Result<()> {
    writeln!(text, "case {id} {}", recorded.fingerprint)?;
    let mut shortener = Shortener::default();
    for answer in &recorded.transcript.0 {
        let StepAnswer { step, request, seen } = answer;
        writeln!(text, "{step} {} {request}", seen.status)?;
        let short = shortener.shorten(&json!({"headers": seen.headers, "body": seen.body}));
        text.push(' ');
        lay_out(text, &short, 1);
        text.push('\n');
    }
    Ok(())
}

fn read_answer(head: &str, body: &str, restorer: &mut Restorer) -> Result<StepAnswer> {
    let mut words = head.splitn(3, ' ');
    let mut number = || words.next().context("STEP STATUS REQUEST");
    let (step, status) = (number()?.parse()?, number()?.parse()?);
    let request = words.next().unwrap_or_default().to_owned();
    let answer = restorer.restore(&serde_json::from_str(body)?)?;
    let headers = Vec::<(String, String)>::deserialize(&answer["headers"])?;
    Ok(StepAnswer {
        step,
        request,
        seen: Seen {
            status,
            headers,
            body: answer["body"].clone(),
        },
    })
}

/// Writes JSON in lines that a diff shows well: what is too wide has one member a line.
fn lay_out(text: &mut String, value: &Value, depth: usize) {
    let line = value.to_string();
    let (open, close, members): (_, _, Vec<(Option<&String>, &Value)>) = match value {
        Value::Object(members) if depth + line.len() > WIDTH => {
            let members = members.iter().map(|(name, member)| (Some(name), member));
            ('{', '}', members.collect())
        }
        Value::Array(items) if depth + line.len() > WIDTH => {
            ('[', ']', items.iter().map(|item| (None, item)).collect())
        }
        _ => return text.push_str(&line),
    };
    text.push(open);
    for (index, (name, member)) in members.into_iter().enumerate() {
        text.push_str(if index == 0 { "\n" } else { ",\n" });
        text.push_str(&" ".repeat(depth + 1));
        if let Some(name) = name {
            text.push_str(&json!(name).to_string());
            text.push_str(": ");
        }
        lay_out(text, member, depth + 1);
    }
    text.push(close);
}

#[cfg(test)]
mod tests;
