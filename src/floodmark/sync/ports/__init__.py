"""What the steps need from the outside, as Protocols: one file per port."""
