"""False alarms of campaigns, and how often they find a true change."""
