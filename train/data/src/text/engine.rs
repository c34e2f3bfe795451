//! The crate that makes tokens of text, where this build has it.
//!
//! What it reads may be a stranger's: it is bounded in bytes, and a panic in it is an error. What a regular expression in it costs is bounded
//! by its engine, for each place of a text; beyond that, such a file is trusted as the data is.

#[cfg(feature = "tokenizers")]
pub(super) use present::{Engine, words};

#[cfg(not(feature = "tokenizers"))]
pub(super) use absent::{Engine, words};

#[cfg(feature = "tokenizers")]
mod present {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use starling_run::panics::said;
    use tokenizers::pre_tokenizers::byte_level::ByteLevel;
    use tokenizers::{ModelWrapper, OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer};

    use crate::text::tokenizer::Role;

    /// What makes tokens of text.
    pub(in crate::text) struct Engine(tokenizers::Tokenizer);

    impl Engine {
        pub(in crate::text) fn open(json: &str) -> Result<Self, String> {
            let open = || {
                let mut engine = tokenizers::Tokenizer::from_bytes(json)?;
                engine.with_padding(None).with_truncation(None)?;
                engine.set_encode_special_tokens(true);
                Ok::<_, tokenizers::Error>(engine)
            };
            let engine = caught(open)?.map_err(|error| {
                format!("it is no `tokenizer.json` as Hugging Face's `tokenizers` writes it ({})", told(&*error))
            })?;
            if let ModelWrapper::BPE(model) = engine.get_model()
                && model.dropout.is_some_and(|share| share > 0.0)
            {
                return Err("it leaves merges out at random (`dropout`); set that to null, so that a text is always the same tokens".to_owned());
            }
            Ok(Self(engine))
        }

        /// Its file, without blanks.
        pub(in crate::text) fn json(&self) -> Result<String, String> {
            caught(|| self.0.to_string(false))?.map_err(|error| told(&*error))
        }

        /// How many tokens there are: the largest number and one more.
        pub(in crate::text) fn tokens(&self) -> u32 {
            let largest = self.0.get_vocab(true).into_values().max();
            largest.map_or(0, |largest| largest.saturating_add(1))
        }

        pub(in crate::text) fn token(&self, name: &str) -> Option<u32> {
            self.0.token_to_id(name)
        }

        pub(in crate::text) fn name(&self, token: u32) -> Option<(String, Role)> {
            match self.0.get_added_vocabulary().get_added_tokens_decoder().get(&token) {
                Some(added) => Some((added.content.clone(), if added.special { Role::Special } else { Role::Added })),
                None => self.0.id_to_token(token).map(|name| (name, Role::Ordinary)),
            }
        }

        /// The tokens of each piece. They are computed in several threads, and come out in order.
        pub(in crate::text) fn encode(&self, pieces: Vec<&str>) -> Result<Vec<Vec<u32>>, String> {
            let encoded = caught(|| self.0.encode_batch_fast(pieces, false))?.map_err(|error| told(&*error))?;
            Ok(encoded.iter().map(|encoding| encoding.get_ids().to_vec()).collect())
        }
    }

    /// Tells the words that a text has, as they are cut before tokens are made of them, in the bytes' letters.
    pub(in crate::text) fn words(text: &str, tell: &mut dyn FnMut(&str)) -> Result<(), String> {
        let mut cut = PreTokenizedString::from(text);
        ByteLevel::new(false, false, true).pre_tokenize(&mut cut).map_err(|error| told(&*error))?;
        let words = cut.get_splits(OffsetReferential::Original, OffsetType::Byte);
        words.iter().for_each(|(word, ..)| tell(word));
        Ok(())
    }

    fn caught<R>(work: impl FnOnce() -> R) -> Result<R, String> {
        catch_unwind(AssertUnwindSafe(work)).map_err(|panic| {
            let reason = said(&*panic).unwrap_or("without a word");
            format!("the crate `tokenizers` gave up on it: {}", crate::shorten(reason))
        })
    }

    /// What the crate says, the start of it: it may repeat a file.
    fn told(error: &dyn std::error::Error) -> String {
        let text = error.to_string();
        text.chars().take(200).map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
    }
}

#[cfg(not(feature = "tokenizers"))]
mod absent {
    use crate::text::tokenizer::Role;

    const ABSENT: &str = "this build makes no tokens: it was built without the feature `tokenizers`";

    /// There is none: nothing makes one.
    #[allow(dead_code)]
    pub(in crate::text) struct Engine;

    impl Engine {
        pub(in crate::text) fn open(_: &str) -> Result<Self, String> {
            Err(ABSENT.to_owned())
        }

        pub(in crate::text) fn json(&self) -> Result<String, String> {
            Err(ABSENT.to_owned())
        }

        pub(in crate::text) fn tokens(&self) -> u32 {
            0
        }

        pub(in crate::text) fn token(&self, _: &str) -> Option<u32> {
            None
        }

        pub(in crate::text) fn name(&self, _: u32) -> Option<(String, Role)> {
            None
        }

        pub(in crate::text) fn encode(&self, _: Vec<&str>) -> Result<Vec<Vec<u32>>, String> {
            Err(ABSENT.to_owned())
        }
    }

    pub(in crate::text) fn words(_: &str, _: &mut dyn FnMut(&str)) -> Result<(), String> {
        Err(ABSENT.to_owned())
    }
}
