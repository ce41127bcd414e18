//! Programs of containers, for the model and for a shell alike.

use serde::{Deserialize, Serialize};

/// A container's process, or a command run beside it. [`Program::command`] is a shell script whose first line, which a
/// shell passes over, describes it to the model.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Program {
    /// Lives so long; without it until it is ended.
    pub seconds: Option<u64>,
    /// Ends with this code by itself.
    pub exit: i32,
    /// Ends with this code upon TERM; without it TERM is ignored.
    pub on_term: Option<i32>,
    /// Prints this line at first.
    pub prints: String,
    /// Leaves these last words in its termination message.
    pub last_words: String,
    /// Writes a file at first: path and content.
    pub writes: Option<(String, String)>,
    /// From so many seconds on, [`Program::question`] gets a bad answer.
    pub unwell_after: Option<u64>,
    /// Is such a question itself.
    pub asks: bool,
}

impl Program {
    /// Runs until a signal ends it.
    pub fn serving() -> Self {
        Self {
            on_term: Some(0),
            ..Self::default()
        }
    }

    /// Ends by itself.
    pub fn ending(seconds: u64, exit: i32) -> Self {
        Self {
            seconds: Some(seconds),
            exit,
            on_term: Some(143),
            ..Self::default()
        }
    }

    /// A command that asks a container whether it is well.
    pub fn question() -> Self {
        Self {
            seconds: Some(0),
            asks: true,
            ..Self::default()
        }
    }

    /// The command line.
    pub fn command(&self) -> Vec<String> {
        ["sh".to_owned(), "-c".to_owned(), self.script()].into()
    }

    fn script(&self) -> String {
        // The shell's quotes end at the next one.
        let described = serde_json::to_string(self)
            .unwrap_or_default()
            .replace('\'', "\\u0027");
        let trap = match self.on_term {
            Some(code) => format!("trap 'exit {code}' TERM"),
            None => "trap '' TERM".to_owned(),
        };
        let life = match self.seconds {
            Some(seconds) => format!("sleep {seconds} & wait $!"),
            None => "while :; do sleep 1 & wait $!; done".to_owned(),
        };
        let mut lines = vec![format!(": '{described}'"), trap];
        if !self.prints.is_empty() {
            lines.push(format!("echo '{}'", self.prints));
        }
        if !self.last_words.is_empty() {
            lines.push(format!("printf '{}' > /dev/termination-log", self.last_words));
        }
        if let Some((path, content)) = &self.writes {
            let content = content.replace('\'', r"'\''");
            lines.push(format!("printf %s '{content}' > {path}"));
        }
        if let Some(seconds) = self.unwell_after {
            lines.push(format!("(sleep {seconds}; : > /tmp/unwell) &"));
        }
        if self.asks {
            lines.push("test ! -e /tmp/unwell; exit".to_owned());
        }
        lines.push(life);
        lines.push(format!("exit {}", self.exit));
        lines.join("\n")
    }

    /// The program of a command line; none where a machine would find nothing to run.
    pub(crate) fn of(command: &[String]) -> Option<Self> {
        let [shell, flag, script] = command else {
            return None;
        };
        let described = script.lines().next()?.strip_prefix(": '")?.strip_suffix('\'')?;
        let is_script = shell == "sh" && flag == "-c";
        serde_json::from_str(described).ok().filter(|_| is_script)
    }
}
