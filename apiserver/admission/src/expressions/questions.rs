//! Questions of expressions to the authorizer.

use crate::host::Host;
use futures::FutureExt as _;
use machinery_cel::{Authorizer, Check, Decision};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Questions about one request that are kept with their answers; each costs a third of what one expression may.
const MAX_QUESTIONS: usize = 64;

/// A question, and the right that it is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Question {
    service_account: Option<(String, String)>,
    check: Check,
    verb: String,
}

/// Answers of the authorizer, and the first question that has none yet.
#[derive(Debug)]
pub(super) struct Answers<'a> {
    host: &'a dyn Host,
    known: Mutex<Vec<(Question, Decision)>>,
    open: Mutex<Option<Question>>,
    /// Ends an evaluation that waits for an answer.
    interrupt: Arc<AtomicBool>,
}

impl<'a> Answers<'a> {
    pub(super) fn new(host: &'a dyn Host) -> Self {
        Self {
            host,
            known: Mutex::default(),
            open: Mutex::default(),
            interrupt: Arc::default(),
        }
    }

    pub(super) fn interrupt(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.interrupt)
    }

    pub(super) fn open_question(&mut self) -> Option<Question> {
        let open = self.open.get_mut().take();
        open.filter(|_| self.known.get_mut().len() < MAX_QUESTIONS)
    }

    /// Asks the authorizer a question that it could not answer at once.
    pub(super) async fn ask(&mut self, question: Question) {
        self.interrupt.store(false, Ordering::Relaxed);
        let decision = self.asked(&question).await;
        self.known.get_mut().push((question, decision));
    }

    async fn asked(&self, question: &Question) -> Decision {
        let account = question.service_account.as_ref();
        let account = account.map(|(namespace, name)| (namespace.as_str(), name.as_str()));
        self.host
            .authorize(account, &question.check, &question.verb)
            .await
    }
}

impl Authorizer for Answers<'_> {
    fn authorize(&self, service_account: Option<(&str, &str)>, check: &Check, verb: &str) -> Decision {
        let question = Question {
            service_account: service_account.map(|(namespace, name)| (namespace.to_owned(), name.to_owned())),
            check: check.clone(),
            verb: verb.to_owned(),
        };
        let mut known = self.known.lock();
        if let Some((_, decision)) = known.iter().find(|(own, _)| *own == question) {
            return decision.clone();
        }
        match self.asked(&question).now_or_never() {
            Some(decision) => {
                if known.len() < MAX_QUESTIONS {
                    known.push((question, decision.clone()));
                }
                decision
            }
            None => {
                self.open.lock().get_or_insert(question);
                self.interrupt.store(true, Ordering::Relaxed);
                Decision::default()
            }
        }
    }
}
