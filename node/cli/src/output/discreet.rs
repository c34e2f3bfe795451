//! Reports without secrets.

use std::sync::Arc;
use std::time::SystemTime;

use starling::{Observer, Report};
use starling_node::credentials::ticket::holds_secret;

/// Tells another observer all but the tickets of private runs.
pub struct Discreet(pub Arc<dyn Observer>);

impl std::fmt::Debug for Discreet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Discreet(..)")
    }
}

impl Observer for Discreet {
    fn report(&self, report: &Report) {
        self.report_at(SystemTime::now(), report);
    }

    fn report_at(&self, at: SystemTime, report: &Report) {
        match report {
            Report::Invitation { ticket } if holds_secret(ticket) => {}
            Report::Listening { addresses, ticket } if holds_secret(ticket) => {
                let addresses = addresses.clone();
                self.0.report_at(at, &Report::Listening { addresses, ticket: String::new() });
            }
            other => self.0.report_at(at, other),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use starling::Ticket;
    use starling::parts::{Contact, PeerId, RunId};

    use super::*;

    #[derive(Default)]
    struct Heard(Mutex<Vec<Report>>);

    impl Observer for Heard {
        fn report(&self, report: &Report) {
            self.0.lock().expect("no test panicked").push(report.clone());
        }
    }

    #[test]
    fn a_private_ticket_is_left_out_and_a_public_one_is_told() {
        let peer = Contact { peer: PeerId([1; 32]), addresses: Vec::new() };
        let ticket = |secret| Ticket::new([peer.clone()], RunId([3; 32]), secret).to_string();
        let listening = |ticket: String| Report::Listening { addresses: vec!["here".to_owned()], ticket };
        let (private, public) = (ticket(Some([9; 32])), ticket(None));
        let heard = Arc::new(Heard::default());
        let discreet = Discreet(heard.clone());
        for ticket in [&private, &public] {
            discreet.report(&listening(ticket.clone()));
            discreet.report(&Report::Invitation { ticket: ticket.clone() });
        }
        let told = heard.0.lock().expect("no test panicked").clone();
        let invitation = Report::Invitation { ticket: public.clone() };
        assert_eq!(told, [listening(String::new()), listening(public), invitation]);
        assert!(!serde_json::to_string(&told[0]).expect("JSON").contains("ticket"));
    }
}
