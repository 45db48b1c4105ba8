"""Creates claims for pods from templates, records them in the pods' statuses, and reserves claims for bound pods."""
