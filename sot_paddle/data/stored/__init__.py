"""Hidden states of a frozen encoder: in files of BERTVision's layout, or made while training."""
