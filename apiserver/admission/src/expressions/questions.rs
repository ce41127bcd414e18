//! Questions of expressions to the authorizer. Where it has not decided, the request ends: a refusal would be an answer.

use crate::AdmissionError;
use crate::host::Host;
use futures::FutureExt as _;
use machinery_cel::{Authorizer, Check, Decision, Interrupt};
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
    undecided: Mutex<Option<AdmissionError>>,
    end: Arc<End>,
}

/// Ends an evaluation that waits for an answer or has none, and any once the request's client has gone.
#[derive(Debug)]
struct End {
    waits: AtomicBool,
    of_request: Option<Arc<dyn Interrupt>>,
}

impl Interrupt for End {
    fn is_wanted(&self) -> bool {
        self.waits.load(Ordering::Relaxed) || self.of_request.as_ref().is_some_and(|own| own.is_wanted())
    }
}

impl<'a> Answers<'a> {
    pub(super) fn new(host: &'a dyn Host) -> Self {
        Self {
            host,
            known: Mutex::default(),
            open: Mutex::default(),
            undecided: Mutex::default(),
            end: Arc::new(End {
                waits: AtomicBool::new(false),
                of_request: host.interrupt(),
            }),
        }
    }

    pub(super) fn interrupt(&self) -> Arc<dyn Interrupt> {
        Arc::clone(&self.end) as Arc<dyn Interrupt>
    }

    pub(super) fn open_question(&mut self) -> Option<Question> {
        let open = self.open.get_mut().take();
        open.filter(|_| self.known.get_mut().len() < MAX_QUESTIONS)
    }

    /// The reason why the authorizer has not decided about a question.
    pub(super) fn undecided(&mut self) -> Option<AdmissionError> {
        self.undecided.get_mut().take()
    }

    /// Asks the authorizer a question that it could not answer at once.
    ///
    /// # Errors
    /// It has not decided.
    pub(super) async fn ask(&mut self, question: Question) -> Result<(), AdmissionError> {
        self.end.waits.store(false, Ordering::Relaxed);
        let decision = self.asked(&question).await?;
        self.known.get_mut().push((question, decision));
        Ok(())
    }

    async fn asked(&self, question: &Question) -> Result<Decision, AdmissionError> {
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
            Some(Err(error)) => {
                self.undecided.lock().get_or_insert(error);
                self.end.waits.store(true, Ordering::Relaxed);
                Decision::default()
            }
            Some(Ok(decision)) => {
                if known.len() < MAX_QUESTIONS {
                    known.push((question, decision.clone()));
                }
                decision
            }
            None => {
                self.open.lock().get_or_insert(question);
                self.end.waits.store(true, Ordering::Relaxed);
                Decision::default()
            }
        }
    }
}
