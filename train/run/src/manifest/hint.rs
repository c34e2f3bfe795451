//! What to do about what the system says of a file.

use std::io::{self, ErrorKind};

/// Advice to put behind an error's text: with its separator, or nothing where there is none to give.
pub fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::NotFound => "; check the name, and that its directory is there",
        ErrorKind::PermissionDenied => "; check its permissions",
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => "; check the disk's space",
        ErrorKind::ReadOnlyFilesystem => "; name a place that can be written to",
        ErrorKind::IsADirectory => "; name a file in it",
        ErrorKind::NotADirectory => "; a part of its path is a file",
        ErrorKind::UnexpectedEof | ErrorKind::InvalidData | ErrorKind::InvalidInput => {
            "; the file is damaged or cut off: copy it again"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_fits_what_is_wrong() {
        let of = |kind: ErrorKind| hint(&io::Error::from(kind));
        assert!(of(ErrorKind::StorageFull).contains("disk's space"));
        assert!(of(ErrorKind::NotFound).contains("directory is there"));
        assert!(of(ErrorKind::UnexpectedEof).contains("cut off"));
        assert_eq!(of(ErrorKind::Interrupted), "");
    }
}
