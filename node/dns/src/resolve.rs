//! From a question to an answer, or to the decision to forward it.

use crate::answer::{Answer, Owner, Section, code};
use crate::query::{CLASS_IN, Query, kind};
use crate::zone::{Found, Record, Zone};

/// Resolution of a question.
#[derive(Debug, PartialEq, Eq)]
pub enum Resolution {
    /// Send this.
    Answer(Vec<u8>),
    /// Not a name of the cluster.
    Forward,
    /// An alias in the cluster of a name outside: the caller resolves the target and appends its addresses.
    Follow { target: String },
    /// A name of the cluster of which nothing is known yet.
    Unknown,
}

/// Aliases within the cluster that are followed; a circle ends here.
const MAX_ALIASES: usize = 8;

/// Answers from the zone, in at most `limit` bytes.
pub fn resolve(zone: &Zone, query: &Query, limit: usize) -> Resolution {
    if query.class != CLASS_IN {
        return Resolution::Answer(Answer::new(query, code::REFUSED, false, limit).finish(query));
    }
    let records = match zone.find(&query.name) {
        Found::Elsewhere => return Resolution::Forward,
        Found::Nothing => return negative(zone, query, code::NAME_ERROR, limit),
        Found::Unknown => return Resolution::Unknown,
        Found::Pod(address) => {
            if query.kind != kind::A && query.kind != kind::ANY {
                return negative(zone, query, code::NO_ERROR, limit);
            }
            let mut answer = Answer::new(query, code::NO_ERROR, true, limit);
            answer.record(Section::Answer, Owner::Question, &Record::A(address));
            return Resolution::Answer(answer.finish(query));
        }
        Found::Records(records) => records,
    };
    if let Some(Record::Cname(target)) = records.first()
        && query.kind != kind::CNAME
    {
        return alias(zone, query, target, limit);
    }
    let mut answer = Answer::new(query, code::NO_ERROR, true, limit);
    // The serial changes with every service, so the SOA is made for each answer and no record of the zone.
    if query.kind == kind::SOA && query.name == zone.domain() {
        answer.record(Section::Answer, Owner::Question, &zone.soa());
        return Resolution::Answer(answer.finish(query));
    }
    let matching: Vec<&Record> = matching(records, query.kind).collect();
    if matching.is_empty() {
        return negative(zone, query, code::NO_ERROR, limit);
    }
    // Another client, another order: that is all the balancing there is.
    let start = usize::from(query.id) % matching.len();
    for record in matching[start..].iter().chain(&matching[..start]) {
        answer.record(Section::Answer, Owner::Question, record);
    }
    for record in &matching {
        if let Record::Srv { target, .. } = record
            // Additional addresses save a client one question per target; they are dropped first where the
            // answer is full.
            && let Found::Records(addresses) = zone.find(target)
        {
            let addresses = addresses
                .iter()
                .filter(|one| matches!(one, Record::A(_) | Record::Aaaa(_)));
            addresses.for_each(|one| answer.record(Section::Additional, Owner::Name(target), one));
        }
    }
    Resolution::Answer(answer.finish(query))
}

fn matching(records: &[Record], kind: u16) -> impl Iterator<Item = &Record> {
    records
        .iter()
        .filter(move |record| record.kind() == kind || (kind == kind::ANY && **record != Record::Exists))
}

/// No such name, or no such record of it; the start of authority says for how long that may be remembered.
fn negative(zone: &Zone, query: &Query, code: u8, limit: usize) -> Resolution {
    let mut answer = Answer::new(query, code, true, limit);
    answer.record(Section::Authority, Owner::Name(zone.domain()), &zone.soa());
    Resolution::Answer(answer.finish(query))
}

/// An alias of a name in the cluster is answered whole; one of a name outside needs another server.
fn alias(zone: &Zone, query: &Query, target: &str, limit: usize) -> Resolution {
    let mut answer = Answer::new(query, code::NO_ERROR, true, limit);
    answer.record(Section::Answer, Owner::Question, &Record::Cname(target.into()));
    let mut name = target.to_owned();
    for _ in 0..MAX_ALIASES {
        match zone.find(&name) {
            Found::Elsewhere => {
                return Resolution::Follow {
                    target: target.to_owned(),
                };
            }
            Found::Unknown => return Resolution::Unknown,
            Found::Nothing => break,
            Found::Pod(address) => {
                if query.kind == kind::A {
                    answer.record(Section::Answer, Owner::Name(&name), &Record::A(address));
                }
                break;
            }
            Found::Records(records) => {
                if let Some(Record::Cname(next)) = records.first() {
                    answer.record(Section::Answer, Owner::Name(&name), &records[0]);
                    name = next.to_string();
                    continue;
                }
                matching(records, query.kind)
                    .for_each(|record| answer.record(Section::Answer, Owner::Name(&name), record));
                break;
            }
        }
    }
    Resolution::Answer(answer.finish(query))
}
